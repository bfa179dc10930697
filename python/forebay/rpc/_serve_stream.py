"""Streams of results in the thread that serves a connection.

A generator between two items is only data, so one thread runs any number of them in turns, and the
calls that come meanwhile. It has to: a caller that calls between two items would wait for the
stream, and the stream for credit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay._core import Connection, ItemWriter
from forebay.errors import Error, LimitError
from forebay.rpc._codec import BY_NUMBER
from forebay.rpc._running import Running, _current, answer_failure, find_method, refuse_async

if TYPE_CHECKING:
    from forebay.rpc._serve import _Service

__all__ = ["CANCELLED", "EXPIRED", "READY", "STREAMS_MAX", "ServedStreams", "iterator_of"]

READY, CANCELLED, EXPIRED = 1, 2, 3
"""The readiness of a stream, as `ItemWriter` reports it; 0 is to wait."""

STREAMS_MAX = 1024
"""Streams of one connection that are open at once; as many as the calls that a server runs."""

_TURN_ITEMS = 64
"""Items of one stream before others and calls have their turn: some 100 us of small ones."""


class ServedStreams:
    """The streams of one connection that is served by a thread."""

    __slots__ = ("_open", "_service")

    def __init__(self, service: _Service) -> None:
        self._service = service
        self._open: dict[int, _Served] = {}

    def begin(
        self, call: int, number: int, head: Any, segments: Any, remaining: float | None
    ) -> None:
        """Start a stream. The first one returns when none runs any more, others at once.

        One above the limit is answered with LimitError, and its method not called.
        """
        service, connection = self._service, self._service.connection
        running = Running(connection)
        running.begin(call, remaining, False)
        token = _current.set(running)
        try:
            codec = BY_NUMBER[number]
            if service.only is not None and service.only is not codec:
                service.refuse(codec)
            self._check_room()
            name, args, kwargs = codec.decode(head, segments)
            if segments:
                segments.clear()
            result = find_method(service.handler, name)(*args, **(kwargs or {}))
            items = iterator_of(name, result)
        except Exception as error:
            _fail(connection, call, number, error)
            return
        finally:
            _current.reset(token)
        first = not self._open
        self._open[call] = _Served(connection, running, number, items)
        if first:
            self._run()

    def _check_room(self) -> None:
        count = len(self._open)
        if count >= STREAMS_MAX:
            raise LimitError(
                f"{count} streams of this connection are open, and STREAMS_MAX is {STREAMS_MAX};"
                " read or close some first",
                limit=STREAMS_MAX,
                value=count + 1,
            )

    def _run(self) -> None:
        """Take turns until the last stream has ended; what interrupts that closes all of them."""
        service, streams = self._service, self._open
        next_work = service.connection.next_work
        try:
            while streams:
                for call, served in tuple(streams.items()):
                    if not served.advance():
                        del streams[call]
                work = next_work() if streams else None
                if work is not None:
                    service.answer(*work)
                    del work  # arguments may be large: they do not stay while others wait
        finally:
            for served in streams.values():
                served.close()
            streams.clear()


class _Served:
    """One stream."""

    __slots__ = ("_connection", "_encode", "_items", "_number", "_running", "_writer")

    def __init__(
        self, connection: Connection, running: Running, number: int, items: Iterator[Any]
    ) -> None:
        self._connection = connection
        self._running = running
        self._number = number
        self._encode = BY_NUMBER[number].encode
        self._items = items
        self._writer = ItemWriter(connection, running.id, number)

    def advance(self) -> bool:
        """Send what may be sent in one turn; false once the stream has ended."""
        items, encode, send = self._items, self._encode, self._writer.send
        token = _current.set(self._running)
        try:
            readiness = self._writer.readiness()
            turn = _TURN_ITEMS
            while readiness == READY and turn:
                turn -= 1
                try:
                    item = next(items)
                except StopIteration:
                    self._connection.reply(self._running.id, self._number, b"")
                    return False
                readiness = send(*encode(item))
        except Exception as error:
            self.close()
            _fail(self._connection, self._running.id, self._number, error)
            return False
        else:
            if readiness in (CANCELLED, EXPIRED):
                self._stop(expired=readiness == EXPIRED)
                return False
            return True
        finally:
            _current.reset(token)

    def close(self) -> None:
        """Close the generator: its `finally` runs now."""
        close_quietly(self._items)

    def _stop(self, *, expired: bool) -> None:
        self.close()
        if expired:
            self._connection.fail_expired(self._running.id)
        else:
            self._connection.fail_cancelled(self._running.id)


def iterator_of(name: str, result: Any) -> Iterator[Any]:
    """The iterator that a method has returned.

    Raises:
        TypeError: it is no iterator.
    """
    if isinstance(result, Iterator):
        return result
    if hasattr(result, "__anext__"):
        refuse_async(name)
    close = getattr(result, "close", None)
    if hasattr(result, "send") and close is not None:
        close()  # a coroutine that was never awaited would warn
    raise TypeError(
        f"{name!r} returned {type(result).__qualname__}, which is no iterator; "
        "yield its results, return iter(...), or use a call"
    )


def close_quietly(items: Iterator[Any]) -> None:
    """Close a generator whose caller has left; what that raises is logged."""
    close = getattr(items, "close", None)
    if close is None:
        return
    try:
        close()
    except Exception as error:
        import logging  # here: it brings threading along, which costs each fork of a template

        logging.getLogger(__name__).warning("a stream raised when it was closed", exc_info=error)


def _fail(connection: Connection, call: int, number: int, error: Exception) -> None:
    """Tell the caller what was raised, unless the connection itself is what failed."""
    if isinstance(error, Error) and connection.closed:
        raise error
    answer_failure(connection, call, number, error)
