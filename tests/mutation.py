"""Mutated inputs for a decoder of Python's, and what it may allocate for each.

`FOREBAY_MUTATIONS` sets how many inputs are tried, `FOREBAY_SEED` the seed of an earlier run, as
for the decoders of the crates.
"""

from __future__ import annotations

import os
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

__all__ = ["REFUSALS", "Input", "drive"]

INPUTS = 4_000
#: What one byte of input may become: an empty dict of one byte takes 64, a small array of some
#: twenty bytes 250. A segment is copied once where it becomes bytes.
FACTOR = 100
SPARE_BYTES = 1 << 16

REFUSALS: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    msgspec.DecodeError,
    RecursionError,
)

Input = tuple[bytes, list[bytes]]
"""A head and the segments beside it."""

Change = Callable[[random.Random, bytes, list[bytes]], bytes]


def drive(
    decode: Callable[[bytes, Any], Any],
    known: Sequence[Input],
    *,
    refusals: tuple[type[Exception], ...] = REFUSALS,
    change: Change | None = None,
    decoded_each: int = 100,
) -> None:
    """Decode the known inputs, then mutations of them, by a seed that changes and is printed.

    Fails where something else than a value or a refusal comes of one, or more memory than its bytes
    can stand for.

    Args:
        decode: what is tried, with a head and the segments beside it.
        known: where mutations begin.
        refusals: what it may raise.
        change: makes another head; by default any of its bytes change.
        decoded_each: of so many inputs, more than one is to mean something.
    """
    seed = int(os.environ.get("FOREBAY_SEED", "0"), 0) or time.time_ns() & 0xFFFF_FFFF
    inputs = max(int(os.environ.get("FOREBAY_MUTATIONS", "0")) or INPUTS, len(known))
    began = time.monotonic()
    chance = random.Random(seed)
    heads = [head for head, _ in known]
    decoded = refused = 0
    tracemalloc.start()
    try:
        for turn in range(inputs):
            head, segments = known[turn] if turn < len(known) else chance.choice(known)
            if turn >= len(known):
                head = (change or mutated)(chance, head, heads)
            came = len(head) + sum(map(len, segments))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                decode(head, list(segments))
                decoded += 1
            except refusals:
                refused += 1
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak <= FACTOR * came + SPARE_BYTES, f"seed {seed}, turn {turn}: {head!r}"
    except BaseException:
        print(f"FOREBAY_SEED={seed} repeats it, at input {turn}: {head!r}")  # noqa: T201
        raise
    finally:
        tracemalloc.stop()
    seconds = time.monotonic() - began
    print(f"mutated: {inputs} inputs in {seconds:.1f} s, {refused} refused, seed {seed}")  # noqa: T201
    assert decoded > inputs // decoded_each
    assert refused > inputs // 100


def mutated(chance: random.Random, head: bytes, others: list[bytes]) -> bytes:
    """Another head: bits flipped, bytes set, parts doubled, cut or taken from others."""
    made = bytearray(head)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(made) + 1)
        end = at + chance.randint(1, 8)
        kind = chance.randrange(6)
        if kind == 0 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            made[at:end] = chance.randbytes(chance.randint(0, 8))
        elif kind == 2:
            made[at:at] = made[at:end] * chance.randint(1, 4)
        elif kind == 3:
            del made[at:end]
        elif kind == 4:
            other = chance.choice(others)
            cut = chance.randrange(len(other) + 1)
            made[at:end] = other[cut : cut + 32]
        elif at < len(made):
            made[at] = chance.choice([0, 1, 0x7F, 0x80, 0xC6, 0xC9, 0xD8, 0xDD, 0xDF, 0xFF])
    return bytes(made)
