"""The file of transitions."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import forebay

NUMBER_BYTES = 8
APPENDED_BYTES = 16 << 20
"""Written by one append, which is two syncs."""


def transition(record_bytes: int) -> np.dtype[np.void]:
    """A record: its number, by which a reader is checked, and what an environment would say."""
    if record_bytes <= NUMBER_BYTES:
        raise forebay.ConfigError(
            f"--record-bytes is {record_bytes}; give more than {NUMBER_BYTES}"
        )
    rest = record_bytes - NUMBER_BYTES
    return np.dtype([("number", "<u8"), ("observation", "u1", (rest,))])


def write(path: Path, records: int, record_bytes: int) -> None:
    """Append so many random transitions, and say how far it is."""
    kind = transition(record_bytes)
    rng = np.random.default_rng(1)
    step = max(1, APPENDED_BYTES // record_bytes)
    with forebay.RecordFile(path, kind, mode="a") as file:
        for first in range(0, records, step):
            rows = np.zeros(min(step, records - first), kind)
            rows["number"] = np.arange(first, first + len(rows))
            rows["observation"] = rng.integers(0, 256, rows["observation"].shape, np.uint8)
            file.append(rows)
            _say(f"\rwriting {path.name}: {(first + len(rows)) * record_bytes >> 20} MiB")
    _say("\n")


def _say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
