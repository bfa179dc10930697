"""The two commit blocks of a record file, which say how many records it has.

They are written in turn, commit `s` into both copies of block `s % 2`. A copy lies in one sector:
a crash leaves the old or the new one, and a copy whose checksum is wrong is damage.
So damage to one sector costs nothing, and differs from a tear; the table of states is in
docs/concepts/blockio/records.md.

A reader may copy a block while it is written, since the kernel does not lock the page. It reads
again while the bytes change.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Final, NamedTuple

from forebay._numpy import np
from forebay.blockio.records.layout import (
    BLOCK_BYTES,
    CHECKSUM_BYTES,
    Layout,
    checksum,
    damaged,
    numbered_checksums,
)
from forebay.errors import BrokenError

__all__ = [
    "COPIES",
    "Block",
    "Commit",
    "decode",
    "encode",
    "mend",
    "offset_of",
    "read_blocks",
    "read_commit",
    "shortage",
    "write_all",
]

MAGIC: Final = b"fbcommit"
COPIES: Final = 2
"""Of a commit in its block, each in a separate sector."""

_COPY: Final = struct.Struct("<8sQQ")
_APART: Final = BLOCK_BYTES // COPIES


class Commit(NamedTuple):
    """One commit.

    Attributes:
        sequence: its number.
        appended: records appended in all, since the file was made.
    """

    sequence: int
    appended: int


class Block(NamedTuple):
    """What a commit block holds.

    Attributes:
        commit: the newest of its copies; None where none is right.
        damaged: how many copies are wrong.
        torn: whether its copies are right, and not of the same commit.
    """

    commit: Commit | None
    damaged: int
    torn: bool


def offset_of(sequence: int) -> int:
    """Where the block of a commit begins in the file."""
    return BLOCK_BYTES * (1 + sequence % 2)


def encode(commit: Commit) -> bytes:
    """The block of a commit."""
    content = _COPY.pack(MAGIC, *commit)
    return (content + checksum(content)).ljust(_APART, b"\0") * COPIES


def decode(block: bytes, slot: int) -> Block:
    """The content of the block in a slot (0 or 1)."""
    copies = [_copy(block[at : at + _APART], slot) for at in range(0, BLOCK_BYTES, _APART)]
    right = {commit for commit in copies if commit is not None}
    return Block(max(right, default=None), copies.count(None), len(right) > 1)


def _copy(copy: bytes, slot: int) -> Commit | None:
    content, stored = copy[: _COPY.size], copy[_COPY.size : _COPY.size + CHECKSUM_BYTES]
    if len(content) < _COPY.size or checksum(content) != stored:
        return None
    magic, sequence, appended = _COPY.unpack(content)
    return Commit(sequence, appended) if magic == MAGIC and sequence % 2 == slot else None


def read_blocks(descriptor: int) -> tuple[Block, Block]:
    """Both blocks of a file.

    Raises:
        OSError: they cannot be read.
    """
    before = b""
    while True:
        blocks = os.pread(descriptor, 2 * BLOCK_BYTES, offset_of(0))
        found = decode(blocks[:BLOCK_BYTES], 0), decode(blocks[BLOCK_BYTES:], 1)
        if not any(block.damaged for block in found) or blocks == before:
            return found
        before = blocks


def read_commit(descriptor: int, path: str, layout: Layout) -> Commit:
    """The newest commit of a file.

    Raises:
        BrokenError: neither block can be believed, or the one that cannot may be the newer one.
        OSError: they cannot be read.
    """
    blocks = read_blocks(descriptor)
    found = [block.commit for block in blocks if block.commit is not None]
    if not found:
        raise damaged(path, "both commit blocks are wrong")
    newest = max(found)
    if len(found) < len(blocks) and _lies_behind(descriptor, layout, newest.appended):
        lost = 1 - newest.sequence % 2
        raise damaged(
            path,
            f"commit block {lost} is wrong in both copies, and there are records behind the"
            f" {newest.appended} that commit block {1 - lost} counts; nothing was changed",
        )
    return newest


def _lies_behind(descriptor: int, layout: Layout, appended: int) -> bool:
    """Whether there may be a commit of more records: theirs are written, and synced, before it."""
    if not layout.slots or appended < layout.slots:
        return os.fstat(descriptor).st_size > layout.data_bytes(appended)
    if not layout.checksums:
        return True
    record = os.pread(descriptor, layout.stride_bytes, layout.offset(appended))
    slot = np.frombuffer(record, np.uint8)
    end = layout.record_bytes + CHECKSUM_BYTES
    stored = record[layout.record_bytes : end]
    sums = numbered_checksums(slot, layout, np.array([appended]))
    return len(record) >= end and sums.tobytes() == stored


def mend(descriptor: int, newest: Commit) -> Commit:
    """Have all copies right and equal before anything is appended; the commit that is newest then.

    It is the same one with a further sequence, which goes into the other block first.

    Raises:
        OSError: a block cannot be written.
    """
    for _ in range(2):
        if not any(block.damaged or block.torn for block in read_blocks(descriptor)):
            break
        newest = Commit(newest.sequence + 1, newest.appended)
        write_all(descriptor, memoryview(encode(newest)), offset_of(newest.sequence))
        os.fdatasync(descriptor)
    return newest


def shortage(descriptor: int, path: str, layout: Layout, commit: Commit) -> BrokenError | None:
    """The error of a file that is shorter than its commit says; None where it is not."""
    size, least = os.fstat(descriptor).st_size, layout.data_bytes(commit.appended)
    if size >= least:
        return None
    return damaged(
        path, f"its {commit.appended} committed records need {least} bytes, and it has {size}"
    )


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write everything, in as many writes as the kernel makes of it.

    Raises:
        OSError: it takes no more.
    """
    while data:
        written = os.pwrite(descriptor, data, offset)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, offset = data[written:], offset + written
