"""xoscar's actor; it stands alone because the process it lives in imports it by name."""

from __future__ import annotations

import os
from typing import Any

import xoscar

from benchmarks.rpc.served import touched


class Echo(xoscar.Actor):  # type: ignore[misc]  # xoscar has no types
    """Answers with what it got."""

    def echo(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data

    def touch(self, array: Any) -> int:
        """Read one byte of every page."""
        return touched(array)

    def birth(self) -> int:
        """The process that it lives in."""
        return os.getpid()
