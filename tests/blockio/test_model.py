"""Random lists of operations against files in memory, on both engines, by all three faces."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from forebay.blockio import FDATASYNC, FSYNC, OPERATION, READ, WRITE, BlockFile, Queue
from forebay.memory import Arena
from tests.blockio.faces import FACES, Call, Faces, Outcome
from tests.blockio.model import ModelFile, Operation, carry_out, independent

FILES = 3
SPAN = 90
"""Where operations begin, in units; the files reach half as far at first."""
LENGTH_MAX = 9
MAX_BATCH = 4
MAX_CONCURRENCY = 10
"""Small, so that ordinary lists are longer than a batch, and than what is in flight at once."""

Bytes = npt.NDArray[np.uint8]
faces = st.sampled_from(FACES)
kinds = st.sampled_from([READ, READ, READ, WRITE, WRITE, FSYNC, FDATASYNC])
lengths = st.integers(0, LENGTH_MAX)
offsets = st.integers(0, SPAN) | st.integers(0, SPAN) | st.just(1 << 20)
operations = st.lists(
    st.tuples(kinds, st.integers(0, FILES - 1), st.integers(0, SPAN), lengths, st.integers(0, 2)),
    max_size=40,
)
seeds = st.integers(0, 1 << 32)


class Store(RuleBasedStateMachine):
    """Real files, beside what their user knows of them."""

    def __init__(self, folder: Path, engine: str, *, direct: bool) -> None:
        super().__init__()
        self.direct = direct
        self.arena = Arena("64MiB")
        queue = Queue(
            engine=engine,
            max_batch=MAX_BATCH,
            max_concurrency=MAX_CONCURRENCY,
            threads=3,
            arena=self.arena,
        )
        self.paths = [folder / str(number) for number in range(FILES)]
        files = [BlockFile(path, mode="w", direct=direct, queue=queue) for path in self.paths]
        self.unit = max(max(file.alignment) for file in files) if direct else 1
        self.faces = Faces(queue, files)
        self.models = []
        for number, path in enumerate(self.paths):
            content = noise(SPAN // 2 * self.unit, number).tobytes()
            path.write_bytes(content)
            self.models.append(ModelFile(content))

    def memory(self, units: int, seed: int) -> Bytes:
        """Memory of the arena, which a direct file needs, full of noise."""
        made = self.arena.empty(max(1, units) * self.unit, np.uint8)
        made[:] = noise(made.size, seed)
        return made

    def call(self, face: str, calls: list[Call]) -> list[Outcome]:
        """Make the calls by a face."""
        outcomes: list[Outcome] = getattr(self.faces, face)(calls)
        return outcomes

    @rule(
        face=faces,
        drawn=operations,
        parts=st.integers(1, 3),
        exact=st.booleans(),
        return_errors=st.booleans(),
        seed=seeds,
    )
    def run_mixed_batches(
        self,
        face: str,
        drawn: list[tuple[int, int, int, int, int]],
        parts: int,
        exact: bool,
        return_errors: bool,
        seed: int,
    ) -> None:
        """Several batches at once, each of any operations, in one buffer."""
        placed = independent(self.models, self.place(drawn))
        end = max((each.buffer_offset + each.length for each in placed), default=0)
        memory = self.memory(end // self.unit + 1, seed)
        expected_memory = bytearray(memory)
        options: dict[str, Any] = {"exact": exact, "return_errors": return_errors}
        lists = [placed[part::parts] for part in range(parts)]
        calls = []
        for listed in lists:
            fields = np.array([each.fields() for each in listed], OPERATION)
            calls.append(Call("run", (fields, self.faces.files, memory), options))
        outcomes = self.call(face, calls)
        self.forgive(placed, memory, expected_memory)
        for listed, outcome in zip(lists, outcomes, strict=True):
            view = memoryview(expected_memory)
            results = carry_out(self.models, listed, view, exact=exact)
            assert outcome == expected(results, return_errors)
        assert memory.tobytes() == expected_memory

    def place(self, drawn: list[tuple[int, int, int, int, int]]) -> list[Operation]:
        """Give each operation room of its own in the buffer, with gaps that nobody may touch."""
        placed, at = [], 0
        for kind, file, offset, length, gap in drawn:
            at += gap
            moves = kind in (READ, WRITE)
            units = (offset, length, at) if moves else (0, 0, 0)
            where, size, start = (each * self.unit for each in units)
            placed.append(Operation(kind, file, where, size, start))
            at += length if moves else 0
        return placed

    def forgive(self, listed: list[Operation], memory: Bytes, expected_memory: bytearray) -> None:
        """Expect what is there behind the end of a direct file: the kernel may put zeros."""
        if self.direct:
            for each in listed:
                tail = self.models[each.file].tail(each)
                if each.kind == READ:
                    expected_memory[tail] = memory[tail].tobytes()

    @rule(
        face=faces,
        file=st.integers(0, FILES - 1),
        block=st.integers(1, LENGTH_MAX),
        drawn=st.lists(st.tuples(offsets, lengths), max_size=40),
        with_lengths=st.booleans(),
        exact=st.booleans(),
        return_errors=st.booleans(),
        own_results=st.booleans(),
        seed=seeds,
    )
    def read_many(
        self,
        face: str,
        file: int,
        block: int,
        drawn: list[tuple[int, int]],
        with_lengths: bool,
        exact: bool,
        return_errors: bool,
        own_results: bool,
        seed: int,
    ) -> None:
        """Blocks at any offsets, also the same ones twice, and beyond the end."""
        listed = self.blocks(READ, file, block, drawn, with_lengths)
        options = self.options(listed, with_lengths, exact, return_errors, own_results)
        memory = self.memory(block * len(listed), seed)[: block * self.unit * len(listed)]
        expected_memory = bytearray(memory)
        where = [each.offset for each in listed]
        (outcome,) = self.call(face, [Call("read_many", (where, memory), options, file)])
        self.forgive(listed, memory, expected_memory)
        results = carry_out(self.models, listed, memoryview(expected_memory), exact=exact)
        assert outcome == expected(results, return_errors)
        assert memory.tobytes() == expected_memory
        if own_results:
            assert options["results"].tolist() == results

    @rule(
        face=faces,
        file=st.integers(0, FILES - 1),
        block=st.integers(1, LENGTH_MAX),
        drawn=st.lists(st.tuples(st.integers(0, SPAN), lengths), max_size=40),
        with_lengths=st.booleans(),
        exact=st.booleans(),
        own_results=st.booleans(),
        seed=seeds,
    )
    def write_many(
        self,
        face: str,
        file: int,
        block: int,
        drawn: list[tuple[int, int]],
        with_lengths: bool,
        exact: bool,
        own_results: bool,
        seed: int,
    ) -> None:
        """Blocks at any offsets that do not overlap, also beyond the end."""
        placed = independent(self.models, self.blocks(WRITE, file, block, drawn, with_lengths))
        pairs = [(each.offset // self.unit, each.length // self.unit) for each in placed]
        listed = self.blocks(WRITE, file, block, pairs, with_lengths)
        options = self.options(listed, with_lengths, exact, False, own_results)
        memory = self.memory(block * len(listed), seed)[: block * self.unit * len(listed)]
        where = [each.offset for each in listed]
        (outcome,) = self.call(face, [Call("write_many", (where, memory), options, file)])
        results = carry_out(self.models, listed, memory.data, exact=exact)
        assert outcome == results
        if own_results:
            assert options["results"].tolist() == results

    def blocks(
        self, kind: int, file: int, block: int, drawn: list[tuple[int, int]], with_lengths: bool
    ) -> list[Operation]:
        """Operations on consecutive blocks of memory; a length is at most a block."""
        listed = []
        for number, (offset, length) in enumerate(drawn):
            units = (offset, min(length, block) if with_lengths else block, number * block)
            listed.append(Operation(kind, file, *(each * self.unit for each in units)))
        return listed

    def options(
        self,
        listed: list[Operation],
        with_lengths: bool,
        exact: bool,
        return_errors: bool,
        own_results: bool,
    ) -> dict[str, Any]:
        """The options of a list of blocks."""
        given: dict[str, Any] = {"exact": exact, "return_errors": return_errors}
        if with_lengths:
            given["lengths"] = [each.length for each in listed]
        if own_results:
            given["results"] = np.full(len(listed), 77)
        return given

    @rule(
        face=faces, file=st.integers(0, FILES - 1), offset=offsets, exact=st.booleans(), seed=seeds
    )
    def read_one_block(self, face: str, file: int, offset: int, exact: bool, seed: int) -> None:
        """One block, which takes another way through the binding than a list."""
        operation = Operation(READ, file, offset * self.unit, LENGTH_MAX * self.unit)
        memory = self.memory(LENGTH_MAX, seed)
        expected_memory = bytearray(memory)
        call = Call("read", (operation.offset, memory), {"exact": exact}, file)
        (outcome,) = self.call(face, [call])
        self.forgive([operation], memory, expected_memory)
        results = carry_out(self.models, [operation], memoryview(expected_memory), exact=exact)
        assert outcome == expected(results, False)
        assert memory.tobytes() == expected_memory

    @rule(
        face=faces,
        file=st.integers(0, FILES - 1),
        offset=st.integers(0, SPAN),
        length=st.integers(1, LENGTH_MAX),
        sync=st.sampled_from(["fsync", "fdatasync"]),
        seed=seeds,
    )
    def write_one_block_and_sync(
        self, face: str, file: int, offset: int, length: int, sync: str, seed: int
    ) -> None:
        """One block, and a sync after it."""
        operation = Operation(WRITE, file, offset * self.unit, length * self.unit)
        memory = self.memory(length, seed)
        (outcome,) = self.call(face, [Call("write", (operation.offset, memory), {}, file)])
        assert outcome == carry_out(self.models, [operation], memory.data, exact=False)
        assert self.call(face, [Call(sync, file=file)]) == [[0]]

    @invariant()
    def the_files_hold_what_the_model_holds(self) -> None:
        for path, model in zip(self.paths, self.models, strict=True):
            assert path.read_bytes() == model.content

    def teardown(self) -> None:
        stats = self.faces.queue.stats()
        self.faces.close()
        assert stats["quarantined_batches"] == stats["leaked_operations"] == 0
        assert all(file.closed for file in self.faces.files)


def noise(count: int, seed: int) -> Bytes:
    """Bytes that are the same for the same seed."""
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def expected(results: list[int], return_errors: bool) -> Outcome:
    """What a call with these results returns or raises."""
    failed = [index for index, result in enumerate(results) if result < 0]
    if return_errors or not failed:
        return results
    return (failed[0], -results[failed[0]])


@pytest.mark.timeout(100)
@pytest.mark.parametrize("direct", [False, True], ids=["cached", "direct"])
@pytest.mark.parametrize("engine", ["ring", "threads"])
def test_random_batches_do_what_they_would_in_memory(
    tmp_path: Path, engine: str, direct: bool
) -> None:
    """Each byte that is read or written is the right one, however lists are split."""
    run_state_machine_as_test(
        partial(Store, tmp_path, engine, direct=direct),  # type: ignore[arg-type]  # any callable will do
        settings=settings(
            max_examples=15 if direct else 40,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
