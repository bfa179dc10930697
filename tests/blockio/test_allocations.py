"""What a list of reads costs of the heap, by each face and on each engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blockio import allocating
from tests.blockio.blocks import content
from tests.preloaded import compiled

RUN_S = 50 + 4 * allocating.DIRECT_BATCHES
"""A deadline for one program; 100,000 direct reads take a loaded disk minutes."""
pytestmark = pytest.mark.timeout(RUN_S + 10)

SOURCE = Path(__file__).with_name("counting.c")
CALL_OBJECTS_MAX = 8
"""Of a blocking call: views of the buffers that the caller gave."""
STRAY = 8
"""Objects of a whole run that are the measurement's own: 77,000 operations more make no other."""
AWAITED_OBJECTS_MAX = 24
"""Of an awaited call on our event loop: coroutines, a future, turns of the loop, views of buffers.

asyncio's own loop makes four more, uvloop seven fewer.
"""
LOCK_OBJECTS = 4
"""A future that is done before somebody waits for it saves its lock."""

Counted = list[tuple[int, int, int]]


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the counters."""
    return compiled(SOURCE, tmp_path_factory.mktemp("counting"))


def count(counting: Path, path: Path, face: str, engine: str, cached: str) -> Counted:
    """Calls of malloc, Python's allocators, that for objects; as many batches of each size."""
    path.write_bytes(content().tobytes())
    command = [sys.executable, "-m", allocating.__name__, face, engine, str(path), cached]
    environment = {**os.environ, "LD_PRELOAD": str(counting)}
    done = subprocess.run(
        command, env=environment, check=False, timeout=RUN_S, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [(malloc, python, objects) for malloc, python, objects in json.loads(done.stdout)]


def further(cached: str) -> int:
    """Batches whose allocations are counted."""
    few, many = allocating.BATCHES[cached]
    return many - few


each_store = pytest.mark.parametrize("cached", ["cached", "direct"])
each_engine = pytest.mark.parametrize("engine", ["ring", "threads"])


@pytest.mark.needs("gcc")
@each_store
@each_engine
def test_a_blocking_call_allocates_nothing_per_operation(
    counting: Path, path: Path, engine: str, cached: str
) -> None:
    """A program that reads for days has the heap that it began with."""
    small, large = count(counting, path, "blocking", engine, cached)
    assert small[0] == large[0] == 0, "calls of malloc"
    assert abs(large[1] - small[1]) <= STRAY
    python = large[1]
    assert python <= CALL_OBJECTS_MAX * further(cached)


@pytest.mark.needs("gcc")
@each_store
@each_engine
@pytest.mark.parametrize("face", ["futures", "io-thread", "asyncio"])
def test_what_is_handed_over_allocates_nothing_per_operation(
    counting: Path, path: Path, face: str, engine: str, cached: str
) -> None:
    """A future or an awaited call costs the same for two thousand blocks as for five hundred."""
    small, large = count(counting, path, face, engine, cached)
    tolerance = LOCK_OBJECTS * further(cached) if face == "futures" else STRAY
    for few, many in zip(small, large, strict=True):
        assert abs(many - few) <= tolerance
    if face != "futures":
        assert large[2] <= AWAITED_OBJECTS_MAX * further(cached)
