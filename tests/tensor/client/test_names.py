"""What names mean over time: published, replaced, dropped, and a server started anew."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import BrokenError, ConfigError, LimitError, OutOfRangeError, StaleError
from forebay.memory import Arena
from forebay.tensor import Tensor, TensorClient, TensorServer
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.faces import FACES, Face, face_of
from tests.tensor.shards import serving, until, url_in


def test_a_replaced_tensor_is_told_once(face: Face, servers: list[TensorServer]) -> None:
    """A handle from before is refused, never answered with other rows; its next use looks anew."""
    assert same(face.call("pull", "table", 3), TABLE[3])
    for server in servers:
        server.publish("table", -TABLE[:60])
    with pytest.raises(StaleError, match="generation"):
        face.call("pull", "table", 3)
    assert same(face.call("pull", "table"), -TABLE[:60])
    with pytest.raises(OutOfRangeError, match="60 rows"):
        face.call("pull", "table", 60)


def test_a_dropped_tensor_is_stale_then_unknown(face: Face, servers: list[TensorServer]) -> None:
    """First the handle is told to be old, then the name to be none."""
    face.call("push", "table", 0, 1)
    for server in servers:
        server.drop("table")
    with pytest.raises(StaleError):
        face.call("push", "table", 0, 2)
    with pytest.raises(ConfigError, match="no tensor 'table'"):
        face.call("push", "table", 0, 3)
    for server in servers:
        with pytest.raises(ConfigError):
            server.drop("table")
        with pytest.raises(ConfigError, match="no tensor 'table'"):
            server.array("table")


@pytest.mark.parametrize("face_name", FACES)
def test_a_server_started_anew_is_found_again(tmp_path: Path, shards: int, face_name: str) -> None:
    """Nothing of the earlier run means anything; the client notices before it asks."""
    with face_of(face_name, url_in(tmp_path), shards=shards) as face:
        with pytest.raises(BrokenError) as caught:
            face.call("pull", "table", timeout=0.3)
        assert caught.value.delivered == "no"
        with serving(tmp_path, {"other": TABLE[:4], "table": TABLE}, shards):
            assert same(face.call("pull", "table", [0, 99]), TABLE[[0, 99]])
        with serving(tmp_path, {"table": TABLE * 2}, shards):
            assert same(face.call("pull", "table", [0, 99]), TABLE[[0, 99]] * 2)
        with pytest.raises(BrokenError):
            face.call("pull", "table", timeout=0.3)


def test_memory_comes_back_once_nobody_reads_it(tmp_path: Path) -> None:
    """A tensor that is dropped or replaced costs nothing any more."""
    with Arena("64MiB") as arena:
        with (
            serving(tmp_path, {"a": TABLE, "b": Tensor((1000, 100))}, arena=arena) as (server,),
            TensorClient(url_in(tmp_path)) as client,
        ):
            assert client.pull("b").shape == (1000, 100)
            server.drop("b")
            until(lambda: arena.stats()["live_bytes"] == TABLE.nbytes)
            server.publish("a", Tensor((10, 10), "f8"))
            until(lambda: arena.stats()["live_bytes"] == 800)
            assert same(client.pull("a"), np.zeros((10, 10)))
        gc.collect()
        assert arena.stats()["live_bytes"] == 0


def test_an_array_of_the_arena_is_published_where_it_lies(tmp_path: Path) -> None:
    """Large tables are not copied; another array is."""
    with Arena("1MiB") as arena:
        table = arena.empty((100, 10), "f4")
        table[...] = TABLE
        with serving(tmp_path, {"in place": table, "copied": TABLE}, arena=arena) as (server,):
            with TensorClient(url_in(tmp_path)) as client:
                client.push("in place", 5, 1)
                assert (table[5] == 1).all()
                client.push("copied", 5, 1)
                assert same(server.array("copied")[5], np.ones(10, "f4"))
                assert same(TABLE[5], np.arange(50, 60, dtype="f4"))
            with pytest.raises(LimitError):
                server.publish("too large", Tensor((1 << 20, 1)))
            assert server.describe()["tensors"].keys() == {"in place", "copied"}


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.float32(3), "first axis"),
        (Tensor, "Python objects"),
        (np.array([object()]), "Python objects"),
        (np.zeros((3, 0), "f4"), "with rows of no bytes"),
    ],
)
def test_what_cannot_be_published_is_refused(tmp_path: Path, tensor: Any, message: str) -> None:
    """A tensor has rows, and bytes that another process can use."""
    with serving(tmp_path, {}) as (server,):
        with pytest.raises(ConfigError, match=message):
            server.publish("table", tensor)
        with pytest.raises(ConfigError):
            server.publish("", TABLE)
        with pytest.raises(ConfigError):
            server.publish("x" * 256, TABLE)
        assert server.describe()["tensors"] == {}


def test_the_owner_writes_between_answers(client: TensorClient, servers: Any, shards: int) -> None:
    """The owner's own changes are seen by clients, and counted as versions."""
    expected = TABLE.copy()
    for shard, server in enumerate(servers):
        told = server.describe()
        first = told["tensors"]["table"]["first"]
        assert (told["shard"], told["shards"]) == (shard, shards)
        version = server.write("table", [first + 1, first + 1], 2, "add")
        assert server.write("table", first, np.arange(10, dtype="f4")) == version + 1
        expected[first + 1] += 4
        expected[first] = np.arange(10)
    assert same(client.pull("table"), expected)
    here = np.concatenate([server.array("table") for server in servers])
    assert same(here, expected)
    with pytest.raises(ValueError, match="read-only"):
        servers[0].array("table")[0] = 1
    if shards > 1:
        with pytest.raises(OutOfRangeError, match="shard 0 holds rows 0 to 33"):
            servers[0].write("table", 99, 0)


def test_initial_content_is_made_where_it_is_held(tmp_path: Path, shards: int) -> None:
    """A function fills each shard's own rows; a number fills all."""
    tensors = {
        "rows": Tensor((50, 2), "i8", initial=numbered),
        "sevens": Tensor((5, 3), "f2", initial=7),
        "mixed": Tensor(4, [("a", "f4"), ("b", "i2")]),
        "few": Tensor((2, 2), initial=1),
    }
    with (
        serving(tmp_path, tensors, shards),
        TensorClient(url_in(tmp_path), shards=shards) as client,
    ):
        assert same(client.pull("rows"), np.arange(50).repeat(2).reshape(50, 2))
        assert same(client.pull("sevens"), np.full((5, 3), 7, "f2"))
        assert same(client.pull("mixed"), np.zeros(4, [("a", "f4"), ("b", "i2")]))
        assert same(client.pull("few", [1, 0, -1]), np.ones((3, 2), "f4"))


def numbered(first: int, count: int) -> Any:
    """Rows that hold their own numbers."""
    return np.arange(first, first + count).repeat(2).reshape(count, 2)


def test_rows_of_no_bytes_name_the_tensor() -> None:
    """With fifty tensors published, the one that is wrong is to be found by its name."""
    with pytest.raises(ConfigError, match=r"tensor 'hollow'.*rows of no bytes"):
        TensorServer({"full": np.zeros((3, 4)), "hollow": np.zeros((3, 0))})
    with pytest.raises(ConfigError, match=r"tensor 'hollow'.*rows of no bytes"):
        TensorServer({"hollow": Tensor((3, 0), "f4")})
