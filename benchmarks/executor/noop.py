"""The request that does nothing; it stands alone, because every worker of every peer imports it."""

from __future__ import annotations


def noop(index: int) -> int:
    """Return the number."""
    return index
