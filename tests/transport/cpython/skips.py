"""Tests of CPython that are left out on our loop, and why; the docs page shows the same table."""

from __future__ import annotations

SKIPS = {
    "test.test_asyncio.test_windows_events": "the module tests loops of Windows",
    "test.test_asyncio.test_windows_utils": "the module tests pipes of Windows",
}
"""Names of tests, or what they begin with, and the reason."""


def reason_to_skip(name: str) -> str | None:
    """Why a test is left out; None for one that is run."""
    for start, reason in SKIPS.items():
        if name == start or name.startswith(start + "."):
            return reason
    return None
