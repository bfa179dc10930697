"""How long ours looks before it sleeps, read from its source, so that peers look as long."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "crates/base/src/spin.rs"
CONSTANT = re.compile(r"^pub const SPIN: Duration = Duration::from_micros\((\d+)\);$", re.MULTILINE)


def spin_us() -> int:
    """Microseconds that a reading thread or a loop of ours looks.

    Raises:
        LookupError: the source does not say so.
    """
    match = CONSTANT.search(SOURCE.read_text())
    if match is None:
        raise LookupError(f"{SOURCE.name} has no constant SPIN in microseconds")
    return int(match[1])
