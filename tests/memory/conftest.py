"""What the tests of `forebay.memory` count on the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

Mapped = Callable[[str], int]


@pytest.fixture
def mapped_bytes() -> Mapped:
    """Give a function that counts the bytes of address space mapped from an arena, by name."""

    def count(name: str) -> int:
        ranges = re.findall(
            rf"^(\w+)-(\w+) .* /memfd:forebay:{re.escape(name)} ",
            Path("/proc/self/maps").read_text(),
            re.MULTILINE,
        )
        return sum(int(end, 16) - int(start, 16) for start, end in ranges)

    return count


@pytest.fixture
def chunk_descriptors() -> Callable[[str], list[int]]:
    """Give a function that lists the descriptors of an arena's chunks, by name."""

    def find(name: str) -> list[int]:
        found = []
        for entry in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{entry}")
            except FileNotFoundError:  # the one that listed the folder
                continue
            if target.startswith(f"/memfd:forebay:{name} "):
                found.append(int(entry))
        return found

    return find
