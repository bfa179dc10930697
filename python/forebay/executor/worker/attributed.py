"""Standard output of requests that run side by side, to the log of each."""

from __future__ import annotations

import contextvars
import io
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from forebay.executor.worker.side import LOG, RECORD_BYTES_MAX

if TYPE_CHECKING:
    from forebay.executor.worker.side import Side

output_of_request: contextvars.ContextVar[Output] = contextvars.ContextVar("forebay_output")
"""Where the running request prints."""


class Output:
    """Sends what one request prints, line by line, as records on the side socket.

    Thread-safe, but if two threads of one request print at once, parts of their lines may mix.

    Attributes:
        id: of the request.
    """

    __slots__ = ("_attempt", "_parts", "_side", "id")

    def __init__(self, side: Side, id: str, attempt: int) -> None:
        self._side = side
        self.id = id
        self._attempt = attempt
        self._parts: list[bytes] = []

    def write(self, content: bytes) -> None:
        """Keep the text until its line ends."""
        self._parts.append(content)
        if b"\n" in content or sum(map(len, self._parts)) >= RECORD_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Send what was kept."""
        if not self._parts:
            return
        parts, self._parts = self._parts, []
        content = b"".join(parts)
        for start in range(0, len(content), RECORD_BYTES_MAX):
            part = content[start : start + RECORD_BYTES_MAX]
            self._side.send(LOG, self.id, self._attempt, part)


def request_of_output() -> str | None:
    """The id of the request that prints here; None: it is none."""
    output = output_of_request.get(None)
    return None if output is None else output.id


class _Bytes(io.RawIOBase):
    """The `buffer` of an attributed stream."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, content: Any) -> int:
        """Write to the log of the request that runs here, or else to the process's own stream."""
        output = output_of_request.get(None)
        content = bytes(content)
        if output is None:
            self._own.write(content)
        else:
            output.write(content)
        return len(content)

    def flush(self) -> None:
        """Send what was kept."""
        output = output_of_request.get(None)
        if output is None:
            self._own.flush()
        else:
            output.flush()

    def fileno(self) -> int:
        """The descriptor of the process's own stream, for programs that a request starts."""
        descriptor: int = self._own.fileno()
        return descriptor


class Attributed:
    """The standard streams of a process in which requests run side by side."""

    def __init__(self) -> None:
        self._before = (sys.stdout, sys.stderr)
        self.streams = [_text(stream) for stream in self._before]

    @classmethod
    def install(cls) -> Attributed:
        """Take the place of stdout and stderr, also in handlers of `logging` made before."""
        made = cls()
        sys.stdout, sys.stderr = made.streams
        _hand_over(made._before, made.streams)
        return made

    def remove(self) -> None:
        """Restore the old streams."""
        sys.stdout, sys.stderr = self._before
        _hand_over(self.streams, self._before)


def _hand_over(old: Sequence[TextIO], new: Sequence[TextIO]) -> None:
    """Have each handler of `logging` that writes to an old stream write to its successor."""
    logging: Any = sys.modules.get("logging")
    if logging is None:
        return
    for handler in [reference() for reference in logging._handlerList]:
        stream = getattr(handler, "stream", None)
        if isinstance(handler, logging.StreamHandler) and stream in old:
            handler.setStream(new[old.index(stream)])


def _text(stream: TextIO) -> TextIO:
    return io.TextIOWrapper(
        cast("BinaryIO", _Bytes(stream.buffer)),
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )
