"""The behaviours that blockio-uring's own tests name, each with the bytes compared."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from forebay.blockio import OPERATION, READ, WRITE, BlockFile, Queue
from forebay.errors import ClosedError, ConfigError
from tests.blockio.blocks import BLOCK_BYTES, BLOCKS, Blocks, content, shuffled
from tests.leak_guard import Holdings

MAX_BATCH = 64
MAX_CONCURRENCY = 192
COUNTS = sorted(
    {32, 96, 200}
    | {MAX_BATCH * times + step for times in (1, 2, 4) for step in (-1, 0, 1)}
    | {MAX_CONCURRENCY * times + step for times in (1, 2, 3) for step in (-1, 0, 1)}
)
"""The counts of its tests, and those around multiples of both limits."""

ENGINES = ("ring", "threads")


@pytest.mark.parametrize("engine", ENGINES)
def test_example_init_close(path: Path, engine: str) -> None:
    """A queue that was made, used, closed and let go of leaves no descriptor and no thread."""
    before = Holdings.now()
    Queue(engine=engine).close()
    with Queue(engine=engine) as queue, BlockFile(path, queue=queue) as file:
        assert file.read_many([0, 1], bytearray(20)).tolist() == [10, 10]
    del queue, file
    assert before.leaks_until(Holdings.now) == []


@pytest.mark.parametrize("count", COUNTS)
def test_example_init_read_close(file: BlockFile, count: int) -> None:
    """A list that has to be split, or has to wait for room, comes back whole and in order."""
    blocks = np.arange(count) * 7 % BLOCKS
    out = np.zeros((count, BLOCK_BYTES), np.uint8)
    assert file.read_many(blocks * BLOCK_BYTES, out).tolist() == [BLOCK_BYTES] * count
    assert (out == content()[blocks]).all()


@pytest.mark.parametrize("count", COUNTS)
def test_example_init_read_close_of_ten_bytes(file: BlockFile, queue: Queue, count: int) -> None:
    """The size of its own reads, each into a place of its own in one buffer."""
    listed = np.zeros(count, OPERATION)
    listed["offset"] = np.arange(count) * 4099 % (BLOCKS * BLOCK_BYTES - 10)
    listed["buffer_offset"] = np.arange(count) * 10
    listed["length"] = 10
    out = np.zeros((count, 10), np.uint8)
    assert queue.run(listed, file, out).tolist() == [10] * count
    places = listed["offset"].astype(np.int64)[:, None] + np.arange(10)
    assert (out == content().ravel()[places]).all()


def test_example_init_empty_close(file: BlockFile, queue: Queue) -> None:
    """An empty list is a result like any other, and costs no system call."""
    before = queue.stats()
    assert queue.run(np.zeros(0, OPERATION), file, bytearray(8)).tolist() == []
    assert file.read_many([], bytearray(0)).tolist() == []
    assert file.write_many([], b"").tolist() == []
    after = queue.stats()
    assert (after["enters"], after["operations"]) == (before["enters"], before["operations"])


def test_example_close_is_idempotent(file: BlockFile, queue: Queue, out: Blocks) -> None:
    """Closing twice is harmless, and what comes later is told why it is refused."""
    file.read_many(shuffled(), out)
    assert queue.close() == 0
    assert queue.close() == 0
    with pytest.raises(ClosedError):
        file.read_many(shuffled(), out)


def test_close_is_idempotent_from_two_threads(file: BlockFile, queue: Queue, out: Blocks) -> None:
    """Two owners that shut down at once both come back, while a reader is at work."""
    start = threading.Barrier(3)
    left: list[int] = []
    refused: list[ClosedError] = []

    def close() -> None:
        start.wait()
        left.append(queue.close())

    def read() -> None:
        start.wait()
        try:
            while True:
                file.read_many(shuffled(), out)
                assert (out == content()[shuffled() // BLOCK_BYTES]).all()
        except ClosedError as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for work in (close, close, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (left, len(refused)) == ([0, 0], 1)


CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "max_batch is {batch}; give 1 or more": lambda batch, _: batch > 0,
    "max_batch is {batch}; give less than 32768": lambda batch, _: batch < 1 << 15,
    "max_concurrency is {concurrency}; give 1 or more": lambda _, most: most > 0,
    "max_concurrency is {concurrency}; give less than 65536": lambda _, most: most < 1 << 16,
    "max_batch is {batch}; give at most max_concurrency": lambda batch, most: batch <= most,
}
"""The five conditions of valid parameters, and what is said when one is not met."""

around = st.sampled_from([-1, 0, 1, 64, 192, (1 << 15) - 1, 1 << 15, (1 << 16) - 1, 1 << 16])
limits = st.integers(1, 1000) | around | st.integers(-(1 << 20), 1 << 20)


@given(limits, limits)
@settings(deadline=None, max_examples=60)
@example(0, 192)
@example(1 << 15, (1 << 16) - 1)
@example(64, 0)
@example(64, 1 << 16)
@example(193, 192)
@example((1 << 15) - 1, (1 << 16) - 1)
def test_prop_valid_parameters(batch: int, concurrency: int) -> None:
    """Each condition that is not met is told by name; all else is a queue that works."""
    unmet = [
        text.format(batch=batch, concurrency=concurrency)
        for text, met in CONDITIONS.items()
        if not met(batch, concurrency)
    ]
    event("refused" if unmet else "works")
    if unmet:
        with pytest.raises(ConfigError) as caught:
            Queue(max_batch=batch, max_concurrency=concurrency)
        assert any(text in str(caught.value) for text in unmet)
        return
    out = bytearray(10)
    with (
        Queue(max_batch=batch, max_concurrency=concurrency) as queue,
        BlockFile(__file__, queue=queue) as file,
    ):
        assert file.read(0, out) == 10
    assert out == Path(__file__).read_bytes()[:10]


def test_laws_of_the_operation_descriptor(file: BlockFile, queue: Queue) -> None:
    """Bytes that are packed by hand to this layout mean the same operation to the core."""
    layout = OPERATION.fields
    assert layout is not None
    assert {name: (layout[name][0].str, layout[name][1]) for name in layout} == {
        "offset": ("<u8", 0),
        "buffer_offset": ("<u8", 8),
        "length": ("<u4", 16),
        "file": ("<u2", 20),
        "kind": ("|u1", 22),
        "flags": ("|u1", 23),
    }
    assert (OPERATION.itemsize, (READ, WRITE)) == (24, (0, 1))
    listed = [(5 * BLOCK_BYTES, 16, 32, 0, READ), (1, 0, 16, 0, WRITE)]
    packed = b"".join(
        offset.to_bytes(8, "little")
        + buffer_offset.to_bytes(8, "little")
        + length.to_bytes(4, "little")
        + number.to_bytes(2, "little")
        + bytes([kind, 0])
        for offset, buffer_offset, length, number, kind in listed
    )
    buffer = bytearray(b"somewater, twice" + bytes(32))
    assert queue.run(np.frombuffer(packed, OPERATION), file, buffer).tolist() == [32, 16]
    assert buffer[16:] == content()[5, :32].tobytes()
    assert os.pread(file.fileno(), 16, 1) == b"somewater, twice"
