"""What the tests of calls on several services call."""

from __future__ import annotations

import time
from typing import Any

from forebay.pool import Service


class Worker(Service):
    """Answers late, at length, or not at all."""

    def late(self, seconds: float, value: Any) -> Any:
        """Return `value` after a while."""
        time.sleep(seconds)
        return value

    def bulk(self, seconds: float, size: int) -> bytes:
        """Return so many bytes after a while."""
        time.sleep(seconds)
        return bytes(size)

    def refuse(self, number: int) -> int:
        """Return 0, and raise for anything else."""
        if number:
            raise ValueError(f"no {number}")
        return number
