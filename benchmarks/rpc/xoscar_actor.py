"""xoscar's actor; it stands alone because the process it lives in imports it by name."""

from __future__ import annotations

import xoscar


class Echo(xoscar.Actor):  # type: ignore[misc]  # xoscar has no types
    """Answers with what it got."""

    def echo(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data
