"""Files and queues for the tests of `forebay.blockio`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from forebay.blockio import BlockFile, Queue, set_default_queue
from tests.blockio.blocks import BLOCK_BYTES, BLOCKS, content


@pytest.fixture(params=["ring", "threads"])
def queue(request: pytest.FixtureRequest) -> Iterator[Queue]:
    """Make a queue on each engine."""
    with Queue(engine=request.param, threads=4) as queue:
        yield queue


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Make a file whose blocks all differ."""
    path = tmp_path / "blocks"
    path.write_bytes(content().tobytes())
    return path


@pytest.fixture
def file(path: Path, queue: Queue) -> Iterator[BlockFile]:
    """Open that file for reading and writing."""
    with BlockFile(path, mode="r+", queue=queue) as file:
        yield file


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Make a pipe with a name: a read of it waits until somebody writes."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.fixture
def out() -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Make room for all blocks."""
    return np.zeros((BLOCKS, BLOCK_BYTES), np.uint8)


@pytest.fixture
def default_on_each_engine(queue: Queue) -> Iterator[None]:
    """Have files that are opened without a queue use one of each engine."""
    set_default_queue(queue)
    yield
    set_default_queue(None)


@pytest.fixture
def default_of_the_test() -> Iterator[None]:
    """Have files that are opened without a queue use one that ends with the test."""
    with Queue() as queue:
        set_default_queue(queue)
        yield
        set_default_queue(None)
