"""Backings: which pages an arena is made of, and what is said where they are not to be had."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from forebay.errors import BrokenError, ConfigError
from forebay.memory import Arena

MIB = 1 << 20


def free_huge_pages() -> int:
    """Huge pages of the machine's pool that nobody has."""
    found = re.search(r"HugePages_Free:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found[1]) if found else 0


def test_an_arena_says_what_it_became_and_why_it_is_nothing_better() -> None:
    """Whoever wonders why registering is slow must see it in the repr."""
    arena = Arena("64MiB", name="auto")
    assert arena.backing is None
    assert repr(arena) == f'<forebay.Arena "auto", at most {64 * MIB} bytes>'
    array = arena.empty(100)
    backing, stats = arena.backing, arena.stats()
    assert backing is not None
    assert f"backing {backing}" in repr(arena)
    pages, _, reason = backing.partition(" (")
    assert stats["hugetlb_bytes"] == (64 * MIB if pages == "hugetlb" else 0)
    assert stats["transparent_bytes"] == (64 * MIB if pages == "transparent" else 0)
    assert ("hugetlb: " in reason) == (pages != "hugetlb")
    assert ("transparent: " in reason) == (pages == "pages")
    del array


def test_plain_pages_can_be_asked_for() -> None:
    """A machine's few huge pages may be meant for something else."""
    arena = Arena("64MiB", backing="pages")
    array = arena.empty(100)
    array[:] = 7
    assert arena.backing == "pages"
    assert array.sum() == 700


def test_huge_pages_are_there_or_refused_with_reason_and_next_step() -> None:
    """A promise of huge pages that became plain ones unseen would be a riddle."""
    arena = Arena("64MiB", name="huge", backing="hugetlb")
    if free_huge_pages() >= 32:
        assert arena.empty(100, np.uint8).nbytes == 100
        assert arena.backing == "hugetlb"
        return
    with pytest.raises(BrokenError, match=r'"huge".*hugetlb.*"auto"') as caught:
        arena.allocate(1)
    assert caught.value.delivered == "no"
    assert arena.stats()["mapped_bytes"] == 0


def test_a_backing_that_does_not_exist_is_refused() -> None:
    """A typing mistake must not become plain pages."""
    with pytest.raises(ConfigError, match=r'"huge".*auto, hugetlb, transparent, pages'):
        Arena("64MiB", backing="huge")  # type: ignore[arg-type]


@pytest.mark.parametrize("populate", [True, False])
def test_pages_are_made_with_their_chunk_where_that_is_asked_for(populate: bool) -> None:
    """The first message must not pay for page faults, where a program would rather pay at start."""
    arena = Arena("4MiB", name=f"populate-{populate}", backing="pages", populate=populate)
    buffer = arena.allocate(1)
    entry = Path("/proc/self/smaps").read_text().split(f"memfd:forebay:populate-{populate} ", 1)[1]
    resident = re.search(r"^Rss:\s+(\d+) kB", entry, re.MULTILINE)
    assert resident is not None
    assert int(resident[1]) == (4096 if populate else 0)
    del buffer
