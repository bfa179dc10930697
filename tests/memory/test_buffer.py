"""Buffers: exports, leases, stale handles, threads, and all of it against a model."""

from __future__ import annotations

import contextlib
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from forebay.errors import BusyError, ConfigError, LimitError, StaleError
from forebay.memory import Arena, Buffer, Reference

MIB = 1 << 20


@pytest.fixture
def arena() -> Arena:
    """Make an arena for one test."""
    return Arena("64MiB")


def test_a_buffer_is_writable_bytes_of_its_size(arena: Arena) -> None:
    """`socket.recv_into` and `readinto` ask for exactly this."""
    buffer = arena.allocate(1000)
    with memoryview(buffer) as view:
        assert (len(buffer), buffer.nbytes, view.nbytes) == (1000, 1000, 1000)
        assert (view.format, view.ndim, view.readonly, view.contiguous) == ("B", 1, False, True)
        view[:] = bytes(range(250)) * 4
    assert bytes(buffer) == bytes(range(250)) * 4


def test_a_buffer_without_bytes_is_a_buffer(arena: Arena) -> None:
    """An empty message is a message."""
    buffer = arena.allocate(0)
    assert bytes(buffer) == b""
    assert bytes(arena.view(buffer.reference)) == b""


def test_free_is_refused_while_a_view_is_live_and_works_after(arena: Arena) -> None:
    """Memory that goes away under a view is a silent corruption."""
    buffer = arena.allocate(100)
    first, second = memoryview(buffer), memoryview(buffer)[10:20]
    for view in (first, second):
        with pytest.raises(BusyError):
            buffer.free()
        view.release()
    # The slice holds a view of its own until it is collected.
    del first, second, view
    buffer.free()
    assert arena.stats()["blocks"] == 0


@pytest.mark.parametrize("make", [np.asarray, lambda buffer: np.frombuffer(buffer, np.uint8)])
def test_free_is_refused_while_an_array_is_live_and_works_after(arena: Arena, make: Any) -> None:
    """An array over freed memory shows somebody else's bytes."""
    buffer = arena.allocate(64)
    array = make(buffer)
    array[:] = 3
    part = array[5:]
    del array
    with pytest.raises(BusyError):
        buffer.free()
    assert (part == 3).all()
    del part
    buffer.free()


def test_free_is_refused_through_an_array_of_the_arena(arena: Arena) -> None:
    """`array.base` must not be a way around the count of exports."""
    array = arena.empty(10)
    base: Any = array
    while not isinstance(base, Buffer):
        base = base.obj if isinstance(base, memoryview) else base.base
    with pytest.raises(BusyError):
        base.free()


def test_an_address_given_away_is_never_freed_under_its_holder(arena: Arena) -> None:
    """Nobody gives back what he read from `__array_interface__`."""
    buffer = arena.allocate(16)
    memoryview(buffer)[:] = bytes(16)
    interface = buffer.__array_interface__
    assert (interface["shape"], interface["typestr"], interface["version"]) == ((16,), "|u1", 3)
    assert interface["data"] == (np.asarray(buffer).ctypes.data, False)
    with pytest.raises(BusyError, match="__array_interface__"):
        buffer.free()
    del buffer
    assert arena.stats()["blocks"] == 0


def test_a_freed_buffer_refuses_every_use(arena: Arena) -> None:
    """Use after free must be an exception, not a read of other data."""
    buffer = arena.allocate(16)
    buffer.free()
    for use in (
        memoryview,
        len,
        lambda it: it.nbytes,
        lambda it: it.reference,
        lambda it: it.__array_interface__,
    ):
        with pytest.raises(StaleError):
            use(buffer)
    with pytest.raises(StaleError):
        buffer.free()
    assert "freed" in repr(buffer)


def test_a_lease_keeps_a_block_whose_maker_freed_it(arena: Arena) -> None:
    """A reader must be able to finish."""
    buffer = arena.allocate(5)
    memoryview(buffer)[:] = b"water"
    reference = buffer.reference
    lease = arena.view(reference)
    buffer.free()
    assert bytes(lease) == b"water"
    assert bytes(arena.view(reference)) == b"water"
    lease.free()
    with pytest.raises(StaleError):
        arena.view(reference)


def test_a_reference_from_before_a_free_is_refused_for_ever(arena: Arena) -> None:
    """A generation that comes round would let a stale handle reach new data."""
    buffer = arena.allocate(1000)
    old = buffer.reference
    buffer.free()
    for _ in range(2000):
        again = arena.allocate(1000)
        assert again.reference.offset == old.offset
        with pytest.raises(StaleError, match="generation 1"):
            arena.view(old)
        again.free()


def test_a_reference_travels_as_five_numbers(arena: Arena) -> None:
    """Messages carry references as plain numbers."""
    buffer = arena.allocate(7)
    reference = buffer.reference
    assert reference == Reference(arena.region, 0, 0, 7, 1)
    assert pickle.loads(pickle.dumps(reference)) == reference
    assert len(arena.view((*reference,))) == 7
    with pytest.raises(StaleError):
        arena.view(reference._replace(length=8))
    with pytest.raises(ConfigError, match="ask the arena that made it"):
        Arena("1MiB").view(reference)
    with pytest.raises(TypeError):
        arena.view(None)  # type: ignore[arg-type]


def test_a_buffer_goes_when_its_last_name_goes(arena: Arena) -> None:
    """Most programs never call `free`."""
    buffer = arena.allocate(7)
    watch = weakref.ref(buffer)
    view = memoryview(buffer)
    del buffer
    assert watch() is not None
    assert arena.stats()["blocks"] == 1
    del view
    assert watch() is None
    assert arena.stats()["blocks"] == 0


def test_threads_never_share_a_block(arena: Arena) -> None:
    """The arena is used by every thread of a server."""
    failures: list[str] = []

    def work(me: int) -> None:
        held: list[Buffer] = []
        for turn in range(1500):
            buffer = arena.allocate(1 + (turn * 7919) % 9000)
            memoryview(buffer)[:] = bytes([me]) * len(buffer)
            held.append(buffer)
            if len(held) > 20:
                old = held.pop(turn % 20)
                if set(bytes(old)) != {me}:
                    failures.append(f"thread {me} read {set(bytes(old))}")
                old.free()

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    stats = arena.stats()
    assert (stats["blocks"], stats["live_bytes"], stats["allocations"]) == (0, 0, 12_000)


def test_one_buffer_survives_views_and_frees_from_many_threads(arena: Arena) -> None:
    """Two threads that race for one buffer get an exception, never freed memory."""
    for _ in range(200):
        assert _race(arena.allocate(64)) == [b"x" * 64] * 2


def _race(buffer: Buffer) -> list[bytes]:
    """Free the buffer while two threads read it; return what they saw, or what was there."""
    memoryview(buffer)[:] = b"x" * 64
    seen: list[bytes] = []
    start = threading.Barrier(3)

    def read() -> None:
        start.wait(10)
        try:
            with memoryview(buffer) as view:
                seen.append(bytes(view))
        except StaleError:
            seen.append(b"x" * 64)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    start.wait(10)
    with contextlib.suppress(BusyError):
        buffer.free()
    for reader in readers:
        reader.join(10)
    return seen


def rounded(n_bytes: int, unit: int = 64) -> int:
    """Round up to a multiple of a unit: a granule, or what a large block is aligned to."""
    return -(-n_bytes // unit) * unit


class ArenaModel(RuleBasedStateMachine):
    """An arena beside a dictionary: bytes stay, leases keep, old references are refused.

    The model of a block is its bytes and the number of its buffers; a buffer is a pair of both.
    """

    buffers = Bundle("buffers")

    def __init__(self) -> None:
        """Start with an arena that is soon full."""
        super().__init__()
        self.arena = Arena(1 * MIB)
        self.blocks: dict[Reference, bytes] = {}
        self.leases: dict[Reference, int] = {}
        self.dead: list[Reference] = []

    @rule(target=buffers, n_bytes=st.integers(0, 300_000), fill=st.integers(0, 255))
    def allocate(self, n_bytes: int, fill: int) -> Any:
        """Allocate and fill a block; a refusal must mean that no gap is large enough."""
        try:
            buffer = self.arena.allocate(n_bytes)
        except LimitError:
            assert not self.has_room(n_bytes), f"{n_bytes} bytes were refused beside a gap for them"
            return None
        memoryview(buffer)[:] = bytes([fill]) * n_bytes
        reference = buffer.reference
        assert reference not in self.blocks
        assert reference not in self.dead
        self.blocks[reference] = bytes([fill]) * n_bytes
        self.leases[reference] = 1
        return buffer, reference

    def has_room(self, n_bytes: int) -> bool:
        """Look at every gap of the only chunk, which is as long as the arena's limit."""
        align = 4096 if n_bytes >= 64 << 10 else 64
        taken = sorted(
            (block.offset, block.offset + rounded(max(1, block.length))) for block in self.blocks
        )
        ends = [0, *(end for _, end in taken)]
        starts = [*(start for start, _ in taken), MIB]
        gaps = zip(ends, starts, strict=True)
        return any(rounded(end, align) + rounded(max(1, n_bytes)) <= start for end, start in gaps)

    @rule(target=buffers, pair=buffers)
    def view(self, pair: Any) -> Any:
        """Take a further lease, if the block lives."""
        if pair is None:
            return None
        reference = pair[1]
        if reference not in self.blocks:
            with pytest.raises(StaleError):
                self.arena.view(reference)
            return None
        self.leases[reference] += 1
        return self.arena.view(reference), reference

    @rule(pair=consumes(buffers), busy=st.booleans())
    def free(self, pair: Any, busy: bool) -> None:
        """Free a buffer, after a refusal if a view is held."""
        if pair is None:
            return
        buffer, reference = pair
        if busy:
            with memoryview(buffer), pytest.raises(BusyError):
                buffer.free()
        buffer.free()
        self.leases[reference] -= 1
        if self.leases[reference] == 0:
            del self.blocks[reference], self.leases[reference]
            self.dead.append(reference)

    @rule()
    def trim(self) -> None:
        """Give back empty chunks; nothing in use may change."""
        self.arena.trim()

    @invariant()
    def bytes_stay_and_old_references_are_refused(self) -> None:
        """Hold every block against its model."""
        for reference, content in self.blocks.items():
            assert bytes(self.arena.view(reference)) == content
        for reference in self.dead[-5:]:
            with pytest.raises(StaleError):
                self.arena.view(reference)
        stats = self.arena.stats()
        assert stats["blocks"] == len(self.blocks)
        assert stats["live_bytes"] == sum(map(len, self.blocks.values()))
        assert stats["live_bytes"] <= stats["mapped_bytes"] <= MIB


ArenaModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_an_arena_agrees_with_its_model = ArenaModel.TestCase
