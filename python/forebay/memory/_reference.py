"""The name of a block, which can be sent to another process."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Reference"]


class Reference(NamedTuple):
    """Names one allocation of one arena; never valid for another.

    A later allocation at the same offset has another generation.
    A reference keeps nothing alive; `Arena.view` makes a buffer of it while the block lives.

    Attributes:
        region: number of the arena, drawn at random when it was made.
        chunk: number of the piece of the arena that holds the block.
        offset: where the block begins in its chunk, in bytes.
        length: bytes that were asked for.
        generation: which allocation of the arena this is.
    """

    region: int
    chunk: int
    offset: int
    length: int
    generation: int
