"""The service of the demo's first act: it imports numpy, which takes a while when cold."""

from __future__ import annotations

import time

import numpy as np

import forebay

__all__ = ["Numbers"]


class Numbers(forebay.Service):
    """A small service with a slow import."""

    def total(self, count: int) -> int:
        """Add up the numbers below `count`."""
        return int(np.arange(count).sum())

    def wait(self, seconds: float) -> float:
        """Answer after `seconds`: the call in which the demo kills this process."""
        time.sleep(seconds)
        return seconds

    def reset(self) -> None:
        """Do nothing: nothing stays from one lease to the next."""
