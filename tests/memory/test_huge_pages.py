"""Arenas of real huge pages, where the machine has some or this user may say that it should."""

from __future__ import annotations

import errno
import mmap
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from forebay.cli.doctor.finding import Finding
from forebay.cli.doctor.pages import page_findings
from forebay.memory import Arena

MIB = 1 << 20
Find = Callable[[str], list[int]]
POOL = Path("/proc/sys/vm/nr_hugepages")
SHARED = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
PAGES = 32
"""Of 2 MiB; as many again are left to arenas of other tests."""


@contextmanager
def told(setting: Path, value: str, before: str) -> Iterator[None]:
    """A setting of the machine, which is put back."""
    try:
        setting.write_text(value)
    except OSError as error:
        pytest.skip(f"{setting} is {before!r} and cannot be set: {error}")
    try:
        yield
    finally:
        setting.write_text(before)


def free_pages() -> int:
    """Huge pages of the pool that nobody has."""
    found = re.search(r"HugePages_Free:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found[1]) if found else 0


@pytest.fixture
def pool_of_pages() -> Iterator[None]:
    """Have the machine's pool hold huge pages."""
    if not POOL.exists():
        pytest.skip("the kernel has no huge pages")
    if free_pages() >= 2 * PAGES:
        yield
        return
    before = POOL.read_text().strip()
    with told(POOL, str(int(before) + 2 * PAGES), before):
        if free_pages() < PAGES:
            pytest.skip(f"the machine's memory has no {PAGES} huge pages left in one piece each")
        yield


@pytest.fixture
def joined_pages() -> Iterator[None]:
    """Have the kernel join pages of shared memory to huge ones, where it is asked to."""
    if not SHARED.exists():
        pytest.skip("the kernel joins no pages")
    before = SHARED.read_text().split("[")[1].split("]")[0]
    if before in {"always", "advise", "within_size"}:
        yield
        return
    with told(SHARED, "advise", before):
        yield


def mapping(name: str) -> dict[str, int]:
    """What the kernel says of the mapping of an arena, in kB."""
    entry = Path("/proc/self/smaps").read_text().split(f"memfd:forebay:{name} ", 1)[1]
    lines = entry.partition("VmFlags")[0]
    return {key: int(value) for key, value in re.findall(r"^(\w+):\s+(\d+) kB", lines, re.M)}


def use(arena: Arena) -> None:
    """Fill all of it, read it by another mapping, free it and give it back."""
    array = arena.empty(PAGES * MIB // 4, np.uint32)
    array[:] = np.arange(len(array))
    rest = arena.empty(100, np.uint8)
    rest[:] = 3
    assert array[-1] == len(array) - 1
    assert rest.sum() == 300
    del array, rest
    arena.trim()
    assert arena.stats()["mapped_bytes"] == 0
    again = arena.empty(MIB, np.uint8)
    assert again.sum() == 0, "pages come back empty"


@pytest.mark.usefixtures("pool_of_pages")
@pytest.mark.parametrize("backing", ["hugetlb", "auto"])
def test_an_arena_of_huge_pages_of_the_pool(backing: str) -> None:
    """Their memory is the kernel's in pages of 2 MiB, counted, and given back to the pool."""
    free = free_pages()
    with Arena(f"{PAGES * 2}MiB", name=f"pool-{backing}", backing=backing) as arena:  # type: ignore[arg-type]
        array = arena.empty(PAGES * MIB, np.uint8)
        array[:] = 7
        assert arena.backing == "hugetlb"
        assert arena.stats()["hugetlb_bytes"] == arena.stats()["mapped_bytes"]
        held = mapping(f"pool-{backing}")
        assert held["KernelPageSize"] == 2048
        assert held["Shared_Hugetlb"] + held["Private_Hugetlb"] >= PAGES * 1024
        del array
        use(arena)
    assert free_pages() >= free - PAGES, "they are in the pool again"


@pytest.mark.usefixtures("pool_of_pages")
def test_others_cannot_map_huge_pages_for_writing(chunk_descriptors: Find) -> None:
    """Nor write to them, which files of huge pages know nothing of."""
    with Arena(f"{PAGES * 2}MiB", name="sealed", backing="hugetlb") as arena:
        buffer = arena.allocate(5)
        memoryview(buffer)[:] = b"water"
        (chunk,) = chunk_descriptors("sealed")
        with open(f"/proc/self/fd/{chunk}", "r+b", buffering=0) as other:
            with pytest.raises(PermissionError):
                mmap.mmap(other.fileno(), 2 * MIB, mmap.MAP_SHARED)
            with pytest.raises(PermissionError):
                other.truncate(0)
            with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
                other.write(b"x")
        assert bytes(buffer) == b"water"


@pytest.mark.usefixtures("joined_pages")
def test_an_arena_of_pages_that_the_kernel_joins() -> None:
    """Where shared memory may have huge pages on advice, the arena gives it."""
    with Arena(f"{PAGES * 2}MiB", name="joined", backing="transparent") as arena:
        array = arena.empty(PAGES * MIB, np.uint8)
        array[:] = 7
        assert arena.backing == "transparent"
        assert arena.stats()["transparent_bytes"] == arena.stats()["mapped_bytes"]
        held = mapping("joined")
        assert held["Rss"] >= PAGES * 1024
        assert held["ShmemPmdMapped"] > 0, "some are mapped as huge ones"
        del array
        use(arena)


def of_arenas() -> Finding:
    """What `forebay doctor` says of huge pages of arenas."""
    (found,) = (each for each in page_findings() if each.name == "huge pages of arenas")
    return found


def test_what_the_doctor_says_to_type_gives_arenas_huge_pages() -> None:
    """The command is typed, and the next arena has what it promises."""
    if not SHARED.exists():
        pytest.skip("the kernel joins no pages")
    if free_pages() >= PAGES:
        pytest.skip("the machine's pool has pages, and arenas use them")
    before = SHARED.read_text().split("[")[1].split("]")[0]
    with told(SHARED, "never", before):
        found = of_arenas()
        assert (found.state, "hugetlb: " in found.value) == ("note", True)
        assert str(SHARED) in str(found.to_type)
        subprocess.run(["sh", "-c", str(found.to_type)], check=True)
        assert of_arenas().value == "made by the kernel"


def test_the_machines_pool_is_told_before_pages_that_are_joined(pool_of_pages: None) -> None:
    """The same order in which an arena looks."""
    assert of_arenas().value == "of the machine's pool"
