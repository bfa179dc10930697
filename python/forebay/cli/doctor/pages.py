"""Checks of huge pages: of arenas, which are registered, and of heaps, which are forked."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from forebay.cli.doctor.finding import Finding, note, ok
from forebay.cli.doctor.remedies import as_root, install_kernel, write_setting

HUGE_BYTES = 2 << 20
CHUNK_BYTES = 64 << 20
"""The size of a chunk, by which an arena grows, and which is registered as a whole."""

SHARED = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
PRIVATE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MADV_COLLAPSE = 25
"""Since Linux 6.1; the module mmap does not name it."""


def page_findings() -> Iterator[Finding]:
    """Map a chunk as an arena does, and join a page as a template does; both are given back."""
    yield _of_arenas()
    yield _of_templates()


def _of_arenas() -> Finding:
    from forebay.errors import Error
    from forebay.memory import Arena

    name = "huge pages of arenas"
    try:
        with Arena(CHUNK_BYTES, name="doctor") as arena:
            arena.allocate(1)
            pages, _, told = str(arena.backing).partition(" (")
    except Error as error:
        return note(name, str(error), "make room for an arena's chunk", "ulimit -S -v unlimited")
    if pages == "hugetlb":
        return ok(name, "of the machine's pool")
    if pages == "transparent":
        return ok(name, "made by the kernel")
    value = f"none: {told.removesuffix(')')}"
    why = "registering memory takes longer by the number of pages; to have fewer"
    if SHARED.exists():
        return note(name, value, why, write_setting("advise", str(SHARED)))
    count = CHUNK_BYTES // HUGE_BYTES + _pool_pages()
    return note(name, value, why, as_root(f"sysctl vm.nr_hugepages={count}"))


def _pool_pages() -> int:
    try:
        return int(Path("/proc/sys/vm/nr_hugepages").read_text())
    except (OSError, ValueError):
        return 0


def _of_templates() -> Finding:
    """A fork copies one entry where 2 MiB lie in one page, and 512 where they do not."""
    name = "huge pages of templates"
    with mmap.mmap(-1, 2 * HUGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1  # a page that was never touched is not joined
        try:
            memory.madvise(MADV_COLLAPSE)
        except OSError as error:
            reason = str(error)
        else:
            return ok(name, "made by the kernel")
    why = "a fork of a large heap takes longer by the number of pages; to have fewer"
    if not PRIVATE.exists():
        return note(name, reason, why, "CONFIG_TRANSPARENT_HUGEPAGE=y")
    if "[never]" in PRIVATE.read_text():
        return note(name, reason, why, write_setting("madvise", str(PRIVATE)))
    return note(name, reason, f"{why}, use Linux 6.1 or later", install_kernel())
