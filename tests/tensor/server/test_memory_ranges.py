"""Arrays that are published where they lie: memory has one name, and a name one tensor."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import ConfigError, StaleError
from forebay.memory import Arena
from forebay.tensor import TensorClient, TensorServer
from forebay.tensor.server.memory_ranges import MemoryRanges
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.shards import serving, url_in


@pytest.fixture
def arena() -> Any:
    """An arena for the server and its owner."""
    with Arena("64MiB") as arena:
        yield arena


@pytest.mark.parametrize(
    "view",
    [slice(None), slice(0, 1), slice(99, 100), slice(40, 60)],
    ids=["all", "first", "last", "middle"],
)
@pytest.mark.parametrize("whole_first", [True, False])
def test_memory_of_another_tensor_is_refused(
    tmp_path: Path, arena: Arena, view: slice, *, whole_first: bool
) -> None:
    """A push to one would change the other behind its version; the message names both."""
    table = arena.empty((100, 10), "f4")
    table[...] = TABLE
    first, second = (table, table[view]) if whole_first else (table[view], table)
    with (
        serving(tmp_path, {"first": first}, arena=arena) as [server],
        TensorClient(url_in(tmp_path), shards=1) as client,
    ):
        with pytest.raises(ConfigError, match="'second' would lie in memory of tensor 'first'"):
            server.publish("second", second)
        with pytest.raises(ConfigError, match="no tensor 'second'"):
            client.pull("second")
        server.publish("second", second.copy())
        client.push("second", 0, -1)
        assert same(client.pull("first"), picked := np.ascontiguousarray(first))
        assert (picked != -1).all()
        server.drop("first")
        server.publish("third", second)
        assert same(client.pull("third"), second)
        server.publish("third", TABLE)  # elsewhere from now on
        server.publish("fourth", first)
        assert same(client.pull("fourth"), first)


def test_neighbours_and_the_tensors_own_range(tmp_path: Path, arena: Arena) -> None:
    """Parts beside each other are several tensors; a name may be given a part of its own."""
    table = arena.empty((100, 10), "f4")
    table[...] = TABLE
    parts = {"low": table[:50], "high": table[50:], "empty": table[20:20]}
    with (
        serving(tmp_path, parts, arena=arena) as [server],
        TensorClient(url_in(tmp_path), shards=1) as client,
    ):
        assert same(client.pull("high"), TABLE[50:])
        server.publish("high", table[60:70])
        with pytest.raises(StaleError):
            client.pull("high")
        assert same(client.pull("high"), TABLE[60:70])
        server.publish("top", table[70:])
        with pytest.raises(ConfigError, match="'high' would lie in memory of tensor 'top'"):
            server.publish("high", table[60:])
        assert same(client.pull("high"), TABLE[60:70])


def test_ranges_against_a_table_of_bytes() -> None:
    """Whatever comes and goes, what is refused is what overlaps."""
    memory = np.zeros(64, "u1")
    for seed in range(50):
        chosen = random.Random(seed)
        ranges, owners = MemoryRanges(), [None] * 64
        for _ in range(100):
            name = chosen.choice("abcdefgh")
            begin = chosen.randrange(64)
            end = min(64, begin + chosen.randrange(12))
            others = {owner for owner in owners[begin:end] if owner not in (None, name)}
            if chosen.random() < 0.2:
                ranges.take(name)
            elif others:
                with pytest.raises(ConfigError) as caught:
                    ranges.check(name, memory[begin:end])
                assert any(f"of tensor {other!r}" in str(caught.value) for other in others)
                continue
            else:
                ranges.check(name, memory[begin:end])
                ranges.put(name, memory[begin:end])
            owners = [None if owner == name else owner for owner in owners]
            if name in ranges._by_name:
                owners[begin:end] = [name] * (end - begin)  # type: ignore[list-item]


def test_threads_that_publish_one_name(tmp_path: Path) -> None:
    """What the owner writes to afterwards is what clients pull."""
    with TensorServer({}, f"unix://{tmp_path}/0.sock") as server:
        for _ in range(30):
            together = threading.Barrier(4)

            def publish(value: int, together: threading.Barrier = together) -> None:
                together.wait()
                server.publish("table", np.full((4, 2 + value), value, "f4"))

            threads = [threading.Thread(target=publish, args=(value,)) for value in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            server.write("table", 0, 9)
            with TensorClient(server.url) as client:
                rows = client.pull("table")
            assert (rows[0] == 9).all()
            assert same(rows, server.array("table"))
