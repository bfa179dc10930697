"""What Schemathesis needs to send MessagePack; it runs there, without our package."""

from __future__ import annotations

from typing import Any

import schemathesis
from msgspec import json, msgpack


@schemathesis.serializer("application/msgpack")
def as_msgpack(context: Any, value: Any) -> bytes:
    """A body; one that MessagePack has no form for is sent in another, which is refused."""
    try:
        return msgpack.encode(value)
    except OverflowError:  # an integer beyond 64 bits
        return json.encode(value)
