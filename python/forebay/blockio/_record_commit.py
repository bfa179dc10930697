"""The two commit blocks of a record file, which say how many records it has.

They are written in turn, commit `s` into block `s % 2`, each with a checksum of its own: one that
a crash tore leaves the other, whose records are all there.

A reader may meet a block while it is written, since nothing locks a page against a copy of it.
It looks again while the bytes change; a block that is wrong and stays as it is, is a torn one.
"""

from __future__ import annotations

import os
import struct
from typing import Final, NamedTuple

from forebay.blockio._record_layout import BLOCK_BYTES, damaged, is_sealed, sealed

__all__ = ["Commit", "decode", "encode", "offset_of", "read_blocks", "read_commit"]

MAGIC: Final = b"fbcommit"
_BLOCK: Final = struct.Struct("<8sQQ")


class Commit(NamedTuple):
    """One commit.

    Attributes:
        sequence: its number.
        appended: records appended in all, since the file was made.
    """

    sequence: int
    appended: int


def offset_of(sequence: int) -> int:
    """Where the block of a commit begins in the file."""
    return BLOCK_BYTES * (1 + sequence % 2)


def encode(commit: Commit) -> bytes:
    """The block of a commit."""
    return sealed(_BLOCK.pack(MAGIC, *commit))


def decode(block: bytes, place: int) -> Commit | None:
    """What the block in a place (0 or 1) says; None where it is torn, damaged or not written."""
    if len(block) < BLOCK_BYTES or not block.startswith(MAGIC) or not is_sealed(block):
        return None
    _, sequence, appended = _BLOCK.unpack_from(block)
    return Commit(sequence, appended) if sequence % 2 == place else None


def read_blocks(descriptor: int) -> tuple[Commit | None, Commit | None]:
    """Both blocks of a file, None for one that is torn or damaged.

    Raises:
        OSError: they cannot be read.
    """
    before = b""
    while True:
        blocks = os.pread(descriptor, 2 * BLOCK_BYTES, offset_of(0))
        found = decode(blocks[:BLOCK_BYTES], 0), decode(blocks[BLOCK_BYTES:], 1)
        if None not in found or blocks == before:
            return found
        before = blocks


def read_commit(descriptor: int, path: str) -> Commit:
    """The newest commit of a file.

    Raises:
        BrokenError: neither block can be believed.
        OSError: they cannot be read.
    """
    found = [commit for commit in read_blocks(descriptor) if commit is not None]
    if not found:
        raise damaged(path, "both commit blocks are wrong")
    return max(found)
