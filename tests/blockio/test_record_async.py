"""The asyncio face of record files: the same records, and appends that share syncs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.blockio import AsyncRecordFile, BlockFile, Queue, RecordFile
from forebay.errors import BlockError, BusyError, ClosedError, ConfigError
from forebay.memory import Arena
from tests.blockio.pipes import feed, until
from tests.blockio.record_files import PADDED, PLAIN, numbered, whole

pytestmark = pytest.mark.usefixtures("default_on_each_engine")

DEADLINE_S = 20.0

Body = Callable[[AsyncRecordFile], Awaitable[None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.fbr"


def run(path: Path, body: Body, dtype: np.dtype[np.void] = PLAIN) -> None:
    """Run a body with an open file."""

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), RecordFile(path, dtype, mode="a") as file:
            await body(file)

    asyncio.run(main(), debug=True)


def test_tasks_share_syncs_and_each_is_told_where_its_records_are(path: Path) -> None:
    """A thousand tasks that each wait for a disk of their own would wait for seconds."""

    async def body(file: AsyncRecordFile) -> None:
        appends = [file.append(numbered(writer * 10, 3, writer=writer)) for writer in range(200)]
        firsts = await asyncio.gather(*appends)
        assert sorted(firsts) == list(range(0, 600, 3))
        assert file.file._appender is not None
        assert file.file._appender.commit.sequence < 10
        records = await file.gather(np.arange(len(file)))
        assert whole(records)
        for writer, first in enumerate(firsts):
            assert records["number"][first : first + 3].tolist() == [
                writer * 10,
                writer * 10 + 1,
                writer * 10 + 2,
            ]
        assert await file.append(numbered(0, 0)) == 600

    run(path, body)


def test_both_faces_give_the_same_batches(path: Path) -> None:
    """A program that is moved to asyncio would train on other batches."""
    with RecordFile(path, PADDED, mode="a") as file:
        file.append(numbered(0, 500, PADDED))
        rng = np.random.default_rng(5)
        expected = [file.sample(32, rng=rng)["number"].tolist() for _ in range(6)]

    async def body(file: AsyncRecordFile) -> None:
        for prefetch in (0, 2):
            rng = np.random.default_rng(5)
            found = [await file.sample(32, rng=rng, prefetch=prefetch) for _ in range(6)]
            assert [batch["number"].tolist() for batch in found] == expected
        out = np.zeros(3, PADDED)
        assert await file.gather([4, -1, 0], out) is out
        assert out["number"].tolist() == [4, 499, 0]
        assert file.refresh() == 500

    run(path, body, PADDED)


def test_a_cancelled_append_is_there_whole_or_not_at_all(path: Path) -> None:
    """A task that ran out of time must not leave a hole, nor keep the others waiting."""

    async def body(file: AsyncRecordFile) -> None:
        chance = np.random.default_rng(1)
        tasks = [asyncio.create_task(file.append(numbered(n * 10, 10))) for n in range(100)]
        for task in tasks[::3]:
            await asyncio.sleep(chance.uniform(0.0, 0.002))  # not a wait: when it is cancelled
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        records = await file.gather(np.arange(len(file)))
        assert whole(records)
        groups = records["number"].reshape(-1, 10)
        assert (np.diff(groups.astype(int), axis=1) == 1).all()
        there = set((groups[:, 0] // 10).tolist())
        told = {n for n, outcome in enumerate(outcomes) if isinstance(outcome, int)}
        assert told <= there
        assert len(there) == len(groups)

    run(path, body)


def test_errors_are_those_of_the_blocking_face(path: Path) -> None:
    """Of a task that reads a record which is damaged, appends what is none, or comes too late."""
    with RecordFile(path, PLAIN, mode="a", checksums=True) as file:
        file.append(numbered(0, 10))
        offset = file.layout.offset(7)
    with open(path, "r+b") as raw:
        raw.seek(offset)
        raw.write(b"\xff")

    async def body(file: AsyncRecordFile) -> None:
        with pytest.raises(BlockError, match="checksum of record 7") as told:
            await file.gather([1, 7])
        assert told.value.index == 1
        with pytest.raises(ConfigError):
            await file.append(np.zeros(3))
        with pytest.raises(IndexError):
            await file.gather([10])
        with pytest.raises(BusyError, match="has an asyncio face already"):
            async with file.file:
                pass
        await file.aclose()
        await file.aclose()
        for late in (file.append(numbered(0, 1)), file.gather([0]), file.sample(1)):
            with pytest.raises(ClosedError):
                await late

    run(path, body)


def test_a_cancelled_close_closes_all_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that runs out of time while a commit is under way must not leave the file open."""
    began, go_on = threading.Event(), threading.Event()

    async def main() -> None:
        record_file = RecordFile(path, PLAIN, mode="a")
        file = await record_file.__aenter__()
        commit = file._commit

        def slow(appender: Any) -> None:
            began.set()
            assert go_on.wait(DEADLINE_S)
            commit(appender)

        monkeypatch.setattr(file, "_commit", slow)
        append = asyncio.create_task(file.append(numbered(0, 3)))
        assert await asyncio.to_thread(began.wait, DEADLINE_S)
        closing = asyncio.create_task(file.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not record_file.closed
        go_on.set()
        assert await append == 0
        await asyncio.to_thread(until, lambda: record_file.closed)

    asyncio.run(main(), debug=True)


def test_a_task_that_waits_for_memory_lets_the_others_run(path: Path, pipe: Path) -> None:
    """Reads in vain hold all of the arena, and the loop stood still until they had ended."""
    n, rng = 5500, np.random.default_rng(7)  # three batches fill the arena

    async def main() -> None:
        with Queue(engine="threads", threads=1) as queue, Arena("2MiB") as arena:
            async with (
                asyncio.timeout(DEADLINE_S),
                BlockFile(pipe, mode="r+", queue=queue) as slow,
                RecordFile(path, PLAIN, mode="a", sync=False, queue=queue, arena=arena) as file,
            ):
                await file.append(numbered(0, n))
                await file.sample(n, rng=rng)
                first = asyncio.create_task(slow.read(0, bytearray(8)))  # it takes the only thread
                await asyncio.sleep(0.05)
                await file.sample(n, rng=rng)
                held = await file.sample(n, rng=rng)
                rng.random()  # what is read ahead is in vain
                last = asyncio.create_task(file.sample(n, rng=rng))
                await asyncio.sleep(0.05)
                assert not last.done()
                feed(pipe, bytes(8))
                assert whole(await last)
                assert whole(held)
                assert await first == 8

    asyncio.run(main())


@pytest.mark.parametrize("out", [np.zeros(2, "f4"), np.zeros((2, 3)), np.zeros(2, "i4")])
def test_memory_of_another_kind_is_refused(path: Path, out: Any) -> None:
    """Numbers would be rounded, or repeated, without a word."""
    with RecordFile(path, "f8", mode="a") as file:
        file.append([1.0, 2.0])

    async def body(file: AsyncRecordFile) -> None:
        with pytest.raises(ConfigError, match="give a writable array of float64"):
            await file.gather([0, 1], out)

    run(path, body, np.dtype("f8"))
