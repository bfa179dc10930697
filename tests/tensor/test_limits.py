"""Limits of servers and clients: each has a name, and reaching it is told."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path

import numpy as np
import pytest

from forebay.errors import DeadlineError, Error, LimitError
from forebay.memory import Arena
from forebay.tensor import Tensor, TensorClient, TensorServer
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, ServerProcess, serving, until, url_in


def test_a_server_has_so_many_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused; one that is dropped makes room."""
    monkeypatch.setenv("FOREBAY_TENSOR_MAX_TENSORS", "2")
    with serving(tmp_path, {"a": TABLE, "b": TABLE}) as (server,):
        with pytest.raises(LimitError):
            server.publish("c", TABLE)
        server.drop("a")
        server.publish("c", TABLE)
        assert server.describe()["tensors"].keys() == {"b", "c"}


def test_a_server_has_so_many_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is turned away with the reason, and let in once there is room."""
    monkeypatch.setenv("FOREBAY_TENSOR_MAX_PEERS", "1")
    with serving(tmp_path, {"table": TABLE}) as (server,), TensorClient(url_in(tmp_path)) as client:
        with TensorClient(url_in(tmp_path)) as first:
            assert same(first.pull("table"), TABLE)
            with pytest.raises(LimitError, match="max_peers"):
                client.pull("table")
        until(lambda: server.metrics()["peers"] == 0)
        assert same(client.pull("table"), TABLE)


def test_a_client_has_so_many_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who pulls faster than a server answers is told, before memory is gone."""
    monkeypatch.setenv("FOREBAY_TENSOR_MAX_WAITING", "20")
    process = ServerProcess(f"unix://{tmp_path}/server.sock")
    try:
        with TensorClient(process.url, slots=1, liveness=1000) as client:
            client.tensor("small")
            process.stop()
            futures = [client.submit("pull", "small") for _ in range(100)]
            process.go_on()
            wait(futures, PATIENCE_S)
            refused = [future for future in futures if future.exception(0) is not None]
            assert 0 < len(refused) < 100
            for future in refused:
                with pytest.raises(LimitError, match="max_waiting"):
                    future.result()
            for future in futures:
                assert future in refused or same(future.result(), np.ones((10, 4), "f4"))
    finally:
        process.kill()


def test_a_grant_bounds_what_is_outstanding(tmp_path: Path) -> None:
    """Less than a pull is granted in pieces; all of it comes."""
    content = np.arange(1_000_000, dtype="i4").reshape(1000, 1000)
    with (
        serving(tmp_path, {"table": content}, grant_bytes="100KB"),
        TensorClient(url_in(tmp_path)) as client,
    ):
        assert same(client.pull("table"), content)
        many = client.pull_many([("table", slice(at, at + 100)) for at in range(0, 900, 9)])
        for at, found in zip(range(0, 900, 9), many, strict=True):
            assert same(found, content[at : at + 100])


def test_an_arena_that_is_full_refuses_before_anything_is_asked(tmp_path: Path) -> None:
    """The limit is named; what was pulled before is as it was."""
    with (
        serving(tmp_path, {"table": Tensor((100, 1000), initial=3)}),
        Arena("1MiB", name="small") as arena,
        TensorClient(url_in(tmp_path), arena=arena) as client,
    ):
        held = [client.pull("table", slice(0, 50)) for _ in range(3)]
        with pytest.raises(LimitError, match="small"):
            client.pull_many([("table", slice(0, 50))] * 3)
        assert all((each == 3).all() for each in held)
        del held
        assert client.pull("table").shape == (100, 1000)


def test_connecting_takes_so_long(tmp_path: Path) -> None:
    """A server that is stopped lets nobody in, and nobody waits for it for ever."""
    process = ServerProcess(f"unix://{tmp_path}/server.sock")
    try:
        process.stop()
        with (
            TensorClient(process.url, connect_timeout=0.1) as client,
            pytest.raises(DeadlineError),
        ):
            client.pull("small")
        with TensorClient(process.url) as client:
            with pytest.raises(DeadlineError):
                client.pull("small", timeout=0.1)
            process.go_on()
            assert same(client.pull("small"), np.ones((10, 4), "f4"))
    finally:
        process.kill()


def test_an_address_has_one_server(tmp_path: Path) -> None:
    """A second one is refused; the first serves on."""
    with serving(tmp_path, {"table": TABLE}), TensorClient(url_in(tmp_path)) as client:
        with pytest.raises((Error, OSError)):
            TensorServer({}, f"unix://{tmp_path}/0.sock")
        assert same(client.pull("table"), TABLE)
