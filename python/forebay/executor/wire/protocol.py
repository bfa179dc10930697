"""The number of the protocol between clients and servers."""

from __future__ import annotations

from typing import Final

PROTOCOL: Final = 2
"""What this version speaks, as `crates/executor/src/message.rs`; who says none speaks 1."""
