"""What Schemathesis needs to send MessagePack; it runs there, without our package."""

from __future__ import annotations

from typing import Any

import schemathesis
from msgspec import msgpack


@schemathesis.serializer("application/msgpack")
def as_msgpack(context: Any, value: Any) -> bytes:
    """A body."""
    return msgpack.encode(value)
