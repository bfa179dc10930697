"""The application of `benchmarks.executor.events`."""

from __future__ import annotations

import forebay

app = forebay.App("events")

MEMORY = "10MB"
FOLLOWED = 10
"""Names that have a reader each."""


def noop(index: int) -> int:
    """Return the number."""
    return index


for name in ("noop", *(f"noop_{number}" for number in range(FOLLOWED))):
    app.request(name=name, lane="short", memory=MEMORY, ahead=8)(noop)
