"""Tests of CPython that do not apply to our loop, and why. The docs page shows the same table."""

from __future__ import annotations

SKIPS: dict[str, str] = {}
