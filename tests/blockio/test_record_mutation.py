"""Headers and commits of strangers: with a right checksum, whatever they say is read or refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from forebay.blockio.records import commit as commits
from forebay.blockio.records.layout import BLOCK_BYTES, CHECKSUM_BYTES, Layout, checksum, sealed
from forebay.errors import BrokenError, ConfigError
from tests.mutation import drive, mutated

DTYPES = [
    np.dtype("<f4"),
    np.dtype(("<i8", (3, 5))),
    np.dtype([("name", "S16"), ("at", "<M8[us]"), ("point", "<f8", (2,))]),
    np.dtype([("inner", [("a", "u1"), ("b", "<c8")]), ("text", "<U3")]),
]
HALF_BYTES = BLOCK_BYTES // 2


def resealed(chance: random.Random, block: bytes, others: list[bytes]) -> bytes:
    """Another header whose checksum is right, as one has that was made by hand."""
    length = len(block[:-CHECKSUM_BYTES].rstrip(b"\0"))
    shorter = [other[:-CHECKSUM_BYTES].rstrip(b"\0") for other in others]
    content = mutated(chance, block[:length], shorter)[: BLOCK_BYTES - CHECKSUM_BYTES]
    return sealed(content)


def test_mutated_headers_are_refused_or_mean_what_they_say() -> None:
    """A crafted header must not end in memory that is not the file's: it corrupted a process."""
    blocks = [
        Layout.new(dtype, capacity, checksums=sums).encode()
        for dtype in DTYPES
        for capacity, sums in ((0, True), (1000, False))
    ]

    def decode(block: bytes, _: Any) -> None:
        layout = Layout.decode(block, "mutated")
        assert not layout.dtype.hasobject
        assert layout.stride_bytes >= layout.record_bytes >= 1
        assert Layout.decode(layout.encode(), "again") == layout

    drive(
        decode,
        [(block, []) for block in blocks],
        refusals=(ConfigError, BrokenError),
        change=resealed,
        decoded_each=200,  # of those that are sealed anew some 46 in 4,000, give or take 7
    )


def test_mutated_commits_count_only_where_their_checksum_is_right() -> None:
    """A commit that was made by hand is a number of records, and never an exception."""
    blocks = [commits.encode(commits.Commit(sequence, 10 * sequence)) for sequence in (0, 1, 2, 7)]

    def change(chance: random.Random, block: bytes, others: list[bytes]) -> bytes:
        copy = mutated(chance, block[:24], [other[:24] for other in others])[:24] or b"\0"
        half = (copy + checksum(copy)).ljust(HALF_BYTES, b"\0")
        return half + chance.choice([half, block[HALF_BYTES:], chance.choice(others)[HALF_BYTES:]])

    def decode(block: bytes, _: Any) -> None:
        found = commits.decode(block[:BLOCK_BYTES], 0)
        if found.commit is None:
            raise BrokenError("no commit", delivered="no")
        assert found.commit.sequence % 2 == 0
        assert found.commit.appended >= 0

    drive(decode, [(block, []) for block in blocks], refusals=(BrokenError,), change=change)


@pytest.mark.parametrize("length", [0, 1, BLOCK_BYTES - 1])
def test_a_header_that_is_cut_is_refused(length: int) -> None:
    """A file that is shorter than its header is no record file, or a damaged one."""
    block = Layout.new(DTYPES[0], 0, checksums=True).encode()
    with pytest.raises((ConfigError, BrokenError)):
        Layout.decode(block[:length], "cut")
