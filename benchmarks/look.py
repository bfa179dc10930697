"""How long ours looks before it sleeps, read from its source, so that peers look as long."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "crates"
CONSTANT = re.compile(r"^pub const SPIN_US: \w+ = (\d+);$", re.MULTILINE)


def spin_us() -> int:
    """Microseconds that a reading thread or a loop of ours looks.

    Raises:
        LookupError: no limit of the transport, nor one single one of another crate, says so.
    """
    found = {
        path.relative_to(SOURCES).parts[0]: int(match[1])
        for path in sorted(SOURCES.glob("*/src/limit.rs"))
        if (match := CONSTANT.search(path.read_text()))
    }
    if "transport" in found:
        return found["transport"]
    if len(set(found.values())) != 1:
        raise LookupError(f"SPIN_US is not one constant of crates/*/src/limit.rs: {found}")
    return next(iter(found.values()))
