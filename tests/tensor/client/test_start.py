"""Clients that are started before their server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import BrokenError, ClosedError
from forebay.tensor import Tensor, TensorClient, TensorServer
from tests.tensor.contents import same
from tests.tensor.faces import FACES, face_of
from tests.tensor.shards import PATIENCE_S, ServerProcess, until


@pytest.fixture(params=["unix", "tcp"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where nobody listens yet."""
    if request.param == "unix":
        yield f"unix://{tmp_path}/late.sock"
        return
    with socket.socket() as reserved:  # nobody else takes the port, and a server may
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{reserved.getsockname()[1]}"


@pytest.mark.parametrize("face_name", FACES)
def test_a_client_waits_for_a_server_that_starts(url: str, face_name: str) -> None:
    """Who starts both at once needs no order between them."""
    with (
        face_of(face_name, url, connect_timeout=PATIENCE_S) as face,
        ThreadPoolExecutor(1) as thread,
    ):
        pulled = thread.submit(face.call, "pull", "small", timeout=PATIENCE_S)
        process = ServerProcess(url, fill=3.0)  # an interpreter starts later than a connect
        try:
            assert same(pulled.result(PATIENCE_S), np.full((10, 4), 3.0, "f4"))
        finally:
            process.kill()


def test_who_comes_while_a_server_is_made_finds_all_its_tensors(url: str) -> None:
    """It listened before it had them, and a client in between heard that it has none."""
    with (
        TensorClient(url, connect_timeout=PATIENCE_S) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        pulled: list[Future[Any]] = []

        class Slow(dict[str, Tensor]):
            def items(self) -> Any:
                pulled.append(thread.submit(client.pull, "small", timeout=PATIENCE_S))
                assert not wait(pulled, timeout=0.3).done
                return super().items()

        with TensorServer(Slow(small=Tensor((10, 4), initial=3.0)), url):
            assert same(pulled[0].result(PATIENCE_S), np.full((10, 4), 3.0, "f4"))


@pytest.mark.parametrize("face_name", FACES)
def test_a_server_that_never_starts_is_told_with_the_time(url: str, face_name: str) -> None:
    """The message has where, why, and for how long it was tried."""
    with face_of(face_name, url, connect_timeout=0.4) as face:
        begun = time.monotonic()
        with pytest.raises(BrokenError, match=r"tried for 0\.4 s") as caught:
            face.call("pull", "small")
        assert time.monotonic() - begun >= 0.3, "it was tried again"
        assert caught.value.delivered == "no"
        assert url in str(caught.value) or "late.sock" in str(caught.value)


def test_a_client_that_is_closed_stops_trying(url: str) -> None:
    """Closing does not wait for a server that never comes."""
    client = TensorClient(url, connect_timeout=600)
    raised: list[BaseException] = []

    def pull() -> None:
        try:
            client.pull("small")
        except ClosedError as error:
            raised.append(error)

    thread = threading.Thread(target=pull)
    thread.start()
    client.close()
    thread.join(PATIENCE_S)
    until(lambda: bool(raised))
