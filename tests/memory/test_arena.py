"""Arenas: what they map, what they refuse, and what outlives them."""

from __future__ import annotations

import gc
import mmap
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from forebay.errors import BrokenError, ClosedError, ConfigError, LimitError, StaleError
from forebay.memory import Arena

MIB = 1 << 20
Count = Callable[[str], int]
Find = Callable[[str], list[int]]


def test_importing_memory_does_not_import_numpy() -> None:
    """A program without numpy would pay 100 ms for nothing."""
    code = "import sys, forebay.memory; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


def test_nothing_is_mapped_before_the_first_allocation(
    mapped_bytes: Count, chunk_descriptors: Find
) -> None:
    """An arena that a default instance makes would cost every program memory and a descriptor."""
    arena = Arena("2GiB", name="lazy")
    assert mapped_bytes("lazy") == arena.stats()["mapped_bytes"] == 0
    assert chunk_descriptors("lazy") == []
    buffer = arena.allocate(1)
    assert mapped_bytes("lazy") == arena.stats()["mapped_bytes"] == 64 * MIB
    assert len(chunk_descriptors("lazy")) == 1
    del buffer


def test_descriptors_and_mappings_go_with_the_arena(
    mapped_bytes: Count, chunk_descriptors: Find
) -> None:
    """A server that makes an arena per request would run out of descriptors."""
    for _ in range(50):
        with Arena("1GiB", name="cycle") as arena:
            kept = [arena.allocate(70 * MIB), arena.empty(100)]
            assert len(chunk_descriptors("cycle")) == 2
        del kept
    assert chunk_descriptors("cycle") == []
    assert mapped_bytes("cycle") == 0


def test_the_limit_error_carries_name_sizes_and_next_step() -> None:
    """Whoever reads the log must see which arena was full, of what, and what to do."""
    arena = Arena("10MiB", name="small")
    kept = arena.allocate(6 * MIB)
    with pytest.raises(LimitError) as caught:
        arena.allocate(5 * MIB)
    assert caught.value.limit == 10 * MIB
    assert caught.value.value == 5 * MIB
    for part in ('"small"', str(5 * MIB), str(6 * MIB), "1 blocks", "arena_bytes_max", "larger"):
        assert part in str(caught.value)
    del kept
    assert len(arena.allocate(10 * MIB)) == 10 * MIB


def test_a_closed_arena_says_how_many_blocks_are_held_and_keeps_their_memory(
    mapped_bytes: Count,
) -> None:
    """Closing under a live array would be a segmentation fault."""
    arena = Arena("1GiB", name="closing")
    buffer, array = arena.allocate(100), arena.empty(1000, np.int32)
    array[:] = 7
    assert arena.close() == 2
    assert arena.closed
    assert arena.close() == 2
    with pytest.raises(ClosedError, match="closing"):
        arena.allocate(1)
    with pytest.raises(ClosedError):
        arena.view(buffer.reference)
    assert (array == 7).all()
    del buffer
    assert arena.close() == 1
    assert mapped_bytes("closing") > 0
    del array
    assert arena.close() == 0
    assert mapped_bytes("closing") == 0


def test_an_array_outlives_its_arena(mapped_bytes: Count) -> None:
    """`load()` that returns an array of a local arena is ordinary code."""
    array = Arena("64MiB", name="gone").empty((100, 100), np.float32)
    gc.collect()
    array[:] = np.arange(100, dtype=np.float32)
    row = array[99]
    del array
    gc.collect()
    assert row.tolist() == [float(n) for n in range(100)]
    del row
    assert mapped_bytes("gone") == 0


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2, 3), np.float32),
        (5, np.int64),
        ((), np.uint8),
        ((0, 3), np.float64),
        ([4, 1], "S7"),
        ((3,), [("a", "i4"), ("b", "f8")]),
    ],
)
def test_empty_makes_the_array_that_numpy_would(shape: object, dtype: object) -> None:
    """Code that swaps `np.empty` for `arena.empty` must not notice."""
    ours = Arena("64MiB").empty(shape, dtype)  # type: ignore[arg-type]
    theirs = np.empty(shape, dtype)  # type: ignore[call-overload]
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert ours.flags.writeable
    assert ours.flags.c_contiguous
    assert ours.flags.aligned


def test_large_arrays_begin_at_a_page() -> None:
    """Direct I/O into an array needs it."""
    arena = Arena("64MiB")
    kept = [arena.empty(n, np.uint8) for n in (1, 64 << 10, 3, 100_000)]
    assert [array.ctypes.data % (4096 if array.nbytes >= 64 << 10 else 64) for array in kept] == [
        0
    ] * 4


def test_what_an_array_cannot_be_is_refused() -> None:
    """An array of objects would hold addresses that mean nothing to another process."""
    arena = Arena("64MiB")
    with pytest.raises(ConfigError, match="object"):
        arena.empty(3, object)
    with pytest.raises(ConfigError, match="negative"):
        arena.empty((2, -1))
    with pytest.raises(TypeError):
        arena.empty(2.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="-1 bytes"):
        arena.allocate(-1)
    assert arena.stats()["allocations"] == 0


@pytest.mark.parametrize("limit", ["2XB", "", "lots", 4095, -1, True, 2.5])
def test_a_limit_that_is_no_size_is_refused(limit: object) -> None:
    """A typing mistake must not become an arena of 2 bytes."""
    with pytest.raises(ConfigError):
        Arena(limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "x" * 101])
def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    """The name goes into the system's memory maps, a line each."""
    with pytest.raises(ConfigError, match="name"):
        Arena("1MiB", name=name)


def test_others_cannot_map_a_chunk_for_writing(chunk_descriptors: Find) -> None:
    """A peer that could write would be able to corrupt its owner."""
    arena = Arena("64MiB", name="sealed", backing="pages")
    buffer = arena.allocate(5)
    memoryview(buffer)[:] = b"water"
    (chunk,) = chunk_descriptors("sealed")
    descriptor = os.open(f"/proc/self/fd/{chunk}", os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        with pytest.raises(PermissionError):
            os.write(descriptor, b"x")
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
        offset = buffer.reference.offset
        with mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ) as seen:
            assert seen[offset : offset + 5] == b"water"
            memoryview(buffer)[:] = b"power"
            assert seen[offset : offset + 5] == b"power"
    finally:
        os.close(descriptor)


def test_a_process_without_descriptors_gets_an_error_that_names_the_call() -> None:
    """A server at its limit of descriptors must see why, and work again when one is free."""
    arena = Arena("64MiB", name="starved")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(BrokenError, match=r'"starved".*memfd_create') as caught:
            arena.allocate(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.delivered == "no"
    assert arena.stats()["mapped_bytes"] == 0
    assert len(arena.allocate(1)) == 1


def test_trim_gives_back_empty_chunks() -> None:
    """A burst must not keep its memory for ever."""
    arena = Arena("1GiB")
    kept, gone = arena.allocate(64 * MIB), arena.allocate(64 * MIB)
    assert arena.trim() == 0
    gone.free()
    assert arena.trim() == 64 * MIB
    assert arena.stats()["mapped_bytes"] == len(kept)


def test_statistics_add_up() -> None:
    """Admission counts on these figures."""
    arena = Arena("1GiB")
    kept = [arena.allocate(n) for n in (100, 200, 300)]
    arena.allocate(1000).free()
    stats = arena.stats()
    assert stats == {
        "limit_bytes": 1 << 30,
        "live_bytes": 600,
        "live_bytes_peak": 1600,
        "mapped_bytes": 64 * MIB,
        "mapped_bytes_peak": 64 * MIB,
        "hugetlb_bytes": stats["hugetlb_bytes"],
        "transparent_bytes": stats["transparent_bytes"],
        "waste_bytes": 64 * MIB - 600,
        "shelved_blocks": 0,
        "shelved_bytes": 0,
        "blocks": len(kept),
        "quarantined_blocks": 0,
        "quarantined_bytes": 0,
        "chunks": 1,
        "allocations": 4,
    }


def test_a_forked_child_is_refused_and_leaves_the_parents_memory_alone() -> None:
    """A child that allocated would hand out the parent's memory a second time."""
    arena = Arena("64MiB", name="parent")
    buffer, doomed = arena.allocate(4), arena.allocate(4)
    memoryview(buffer)[:] = b"safe"
    child = os.fork()
    if child == 0:
        os._exit(_refusals_in_child(arena, [buffer, doomed], buffer.reference))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(buffer) == b"safe"
    assert arena.stats()["blocks"] == 2
    doomed.free()
    assert arena.stats()["blocks"] == 1


def _refusals_in_child(arena: Arena, buffers: list[object], reference: object) -> int:
    """Return how many calls were not refused, or 100 if the child's own arena does not work."""
    buffer = buffers[0]
    calls: list[Callable[[], object]] = [
        lambda: arena.allocate(1),
        lambda: arena.view(reference),  # type: ignore[arg-type]
        lambda: arena.close(),
        lambda: arena.stats(),
        lambda: memoryview(buffer),  # type: ignore[arg-type]
        lambda: buffer.free(),  # type: ignore[attr-defined]
    ]
    missed = 0
    for call in calls:
        try:
            call()
        except StaleError as error:
            missed += "forked child" not in str(error)
        else:
            missed += 1
    buffers.clear()  # the drops of a child must change nothing
    own = Arena("64MiB").empty(10)
    own[:] = 1
    return missed if own.sum() == 10 else 100


def test_a_forked_grandchild_is_refused_by_the_childs_arena() -> None:
    """A template forks services from a process that was forked itself."""
    child = os.fork()
    if child == 0:
        arena = Arena("64MiB")
        grandchild = os.fork()
        if grandchild == 0:
            try:
                arena.allocate(1)
            except StaleError:
                os._exit(7)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        os._exit(code if len(arena.allocate(1)) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_a_thread_freed_is_in_nobodys_way() -> None:
    """A thread that keeps freed blocks at hand must not make another one's allocation fail."""
    arena = Arena("64MiB")
    freed, end = threading.Event(), threading.Event()

    def work() -> None:
        blocks = [arena.allocate(65_536) for _ in range(12)]
        for block in blocks:
            block.free()
        freed.set()
        end.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert freed.wait(20)
        assert arena.stats()["shelved_blocks"] > 0
        assert len(arena.allocate(64 * MIB)) == 64 * MIB
        assert arena.stats()["shelved_blocks"] == 0
    finally:
        end.set()
        thread.join()
