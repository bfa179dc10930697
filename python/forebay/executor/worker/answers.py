"""The answers of a worker, as crates/executor/src/message/work.rs reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.errors import LimitError
from forebay.executor.wire.codec import encoder
from forebay.executor.worker.failure import failure_of

if TYPE_CHECKING:
    from forebay._core import Connection

SEGMENT_BYTES_MIN = 64 << 10
"""A blob of this size or more is sent beside the head."""

CANCELLED = b"\x91\x02"
RETURNED = b"\x91\x03"
"""The answer to a call that was given back on the side socket."""
IN_FILE = b"\x92\x04"
"""How the answer begins whose result lies in a file."""

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


def too_long(error: LimitError) -> Answer:
    """The failure of a request whose result is above a limit."""
    told = LimitError(f"the result is too long to be sent: {error}; return the path of a file")
    return failure(failure_of(told))


def in_file(size: int) -> Answer:
    """`[4, size]`: the result lies in the file of this run."""
    return encoder().encode((4, size)), None


def reply(connection: Connection, number: int, answer: Answer) -> bool:
    """Send an answer without waiting; true if nothing is left to send.

    One that is longer than the server accepts becomes a failure that says so.

    Raises:
        ClosedError, BrokenError: the server has ended.
    """
    try:
        return connection.reply(number, 0, *answer)
    except LimitError as error:
        return connection.reply(number, 0, *too_long(error))


def raised(blob: bytes) -> Answer:
    """`[1, blob]`, for a call by pickle."""
    if len(blob) >= SEGMENT_BYTES_MIN:
        return _NIL_FAILURE, [blob]
    return encoder().encode((1, blob)), None
