"""Numbers that both languages need."""

from __future__ import annotations

import re
from pathlib import Path

from forebay.rpc import _loop, _stall, _watch
from forebay.transport import _entry

LIMITS = Path(__file__).parents[2] / "crates/transport/src/limit.rs"
OURS = {
    "OUTBOX_BYTES_HIGH": _watch.OUTBOX_BYTES_HIGH,
    "OUTBOX_BYTES_LOW": _loop._OUTBOX_BYTES_LOW,
    "STALL_BYTES_MIN": _stall.STALL_BYTES_MIN,
    "TOKEN_BYTES_MAX": _entry.TOKEN_BYTES_MAX,
}


def test_limits_are_those_of_the_core() -> None:
    """A limit that is changed in one language only would be two limits."""
    text = LIMITS.read_text()
    found = dict(re.findall(r"pub const (\w+): \w+ = (\d[\d_]*(?: << \d+)?);", text))
    for name, ours in OURS.items():
        number, _, shift = found[name].partition(" << ")
        assert int(number) << int(shift or 0) == ours, name
