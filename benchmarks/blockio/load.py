"""How much is read at once: the same for ours, for fio and for every peer."""

from __future__ import annotations

from typing import Final

READS: Final = 2048
"""Reads of a list that is handed over at once."""
BATCH: Final = 32
"""Reads that one system call submits."""
DEPTH: Final = 128
"""Reads in flight."""
LISTS: Final = 512
"""Lists of different offsets: a million reads before one is repeated."""
