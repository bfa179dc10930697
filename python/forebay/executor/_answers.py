"""The answers of a worker, as crates/executor/src/message/work.rs reads them."""

from __future__ import annotations

from typing import Any

from forebay.executor._codec import encoder

SEGMENT_BYTES_MIN = 64 << 10
"""From here on a blob travels beside the head."""

CANCELLED = b"\x91\x02"
NOTHING = b"\x92\x00\xc4\x01\xc0"
"""The result None."""

_NIL_RESULT = b"\x92\x00\xc0"
_NIL_FAILURE = b"\x92\x01\xc0"
_RESULT_BYTE = b"\x92\x00\xc4"

Answer = tuple[bytes, list[Any] | None]
"""Head and segments."""


def result(blob: bytes) -> Answer:
    """`[0, blob]`."""
    size = len(blob)
    if size < 256:
        return _RESULT_BYTE + bytes((size,)) + blob, None
    if size >= SEGMENT_BYTES_MIN:
        return _NIL_RESULT, [blob]
    return encoder().encode((0, blob)), None


def failure(described: dict[str, str]) -> Answer:
    """`[1, map]`."""
    return encoder().encode((1, described)), None


def raised(blob: bytes) -> Answer:
    """`[1, blob]`, for a call by pickle."""
    if len(blob) >= SEGMENT_BYTES_MIN:
        return _NIL_FAILURE, [blob]
    return encoder().encode((1, blob)), None
