"""Serving one connection, one call after the other, in the calling thread."""

from __future__ import annotations

from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn

from forebay._core import Connection
from forebay.errors import ClosedError, ConfigError
from forebay.rpc._codec import BY_NUMBER, Codec, by_name
from forebay.rpc._running import Running, _current, answer_failure, find_method, refuse_async

if TYPE_CHECKING:
    from forebay.rpc._serve_stream import ServedStreams

__all__ = ["serve_connection"]

OnControl = Callable[[str, tuple[Any, ...]], Any]

STREAMED = frozenset({AsyncGeneratorType, GeneratorType})
"""What a method returns that is a stream."""
_UNANSWERED = STREAMED | {CoroutineType}


def serve_connection(
    connection: Connection,
    handler: Any,
    *,
    codec: str | None = None,
    generation: int = 0,
    on_control: OnControl | None = None,
    next_call: Callable[[], Any] | None = None,
    after_call: Callable[[], None] | None = None,
) -> None:
    """Answer calls until the peer closes.

    Args:
        connection: made with `server=True`; stays yours to close.
        handler: any object; its public methods can be called, generators among them as streams.
        codec: take calls in this codec only; by default in any that the connection allows.
        generation: refuse calls of older generations; newer ones move it on.
        on_control: gets `(name, args)` of methods that start with "@"; its result is the answer.
        next_call: where calls come from, if not from `connection.next_call`; None ends it.
        after_call: runs when a method has, before its answer is sent; not after a stream.

    Raises:
        ProtocolError: the peer broke the protocol.
        ConfigError: unknown codec.

    Thread affinity: one thread per connection; streams take turns in it, and calls come between
    two items. An exception of a method is answered and serving goes on; `SystemExit` and
    `KeyboardInterrupt` go through.
    """
    only = None if codec is None else by_name(codec)
    if generation:
        connection.set_generation(generation)
    service = _Service(connection, handler, only, on_control, after_call)
    token = _current.set(service.running)
    answer = service.answer
    next_call = next_call or connection.next_call
    try:
        while (call := next_call()) is not None:
            answer(*call)
            del call  # arguments may be large: they do not stay while the next call is awaited
    except ClosedError:
        if not connection.closed:
            raise
    finally:
        _current.reset(token)


class _Service:
    """What the serving loop needs for each call."""

    __slots__ = (
        "_after_call",
        "_streams",
        "connection",
        "handler",
        "on_control",
        "only",
        "running",
    )

    def __init__(
        self,
        connection: Connection,
        handler: Any,
        only: Codec | None,
        on_control: OnControl | None,
        after_call: Callable[[], None] | None = None,
    ):
        self.connection = connection
        self.handler = handler
        self.only = only
        self.on_control = on_control
        self.running = Running(connection)
        self._after_call = after_call
        self._streams: ServedStreams | None = None

    def answer(
        self,
        call: int,
        number: int,
        head: Any,
        segments: Any,
        remaining: float | None,
        oneway: bool,
        stream: bool,
    ) -> None:
        """Run one call and send its answer."""
        if stream:
            self._stream(call, number, head, segments, remaining)
            return
        self.running.begin(call, remaining, oneway)
        codec, connection = BY_NUMBER[number], self.connection
        try:
            if self.only is not None and self.only is not codec:
                self.refuse(codec)
            method, args, kwargs = codec.decode(head, segments)
            if segments:
                segments.clear()
            try:
                result = self.run(method, args, kwargs)
            finally:
                if self._after_call is not None:
                    self._after_call()
            del args, kwargs  # what was lent goes back before the answer, and serves the next call
            if oneway:
                return
            answer, parts = codec.encode(result)
            flushed = connection.reply(call, number, answer, parts)
        except Exception as error:
            if oneway:
                _report(error)
                return
            flushed = answer_failure(connection, call, number, error)
        if not flushed:
            connection.drain()

    def refuse(self, codec: Codec) -> NoReturn:
        """For a call in another codec than the only one that is taken."""
        assert self.only is not None
        raise ConfigError(f"calls are taken in {self.only.name}, not in {codec.name}")

    def _stream(
        self, call: int, number: int, head: Any, segments: Any, remaining: float | None
    ) -> None:
        """Run a stream; returns at once where others run, else when none does."""
        if self._streams is None:
            from forebay.rpc._serve_stream import ServedStreams

            self._streams = ServedStreams(self)
        self._streams.begin(call, number, head, segments, remaining)

    def run(self, name: str, args: Any, kwargs: Any) -> Any:
        """Call the method or the control method `name`."""
        if name[:1] == "@":
            if self.on_control is None:
                raise AttributeError(f"control method {name!r} is not served here")
            return self.on_control(name, tuple(args))
        method = find_method(self.handler, name)
        result = method(*args, **kwargs) if kwargs else method(*args)
        if type(result) in _UNANSWERED:
            _refuse(name, result)
        return result


def _refuse(name: str, result: Any) -> NoReturn:
    if type(result) is CoroutineType:
        result.close()
        refuse_async(name)
    refuse_call(name)


def refuse_call(name: str) -> NoReturn:
    """For a call of a method that is a stream."""
    raise TypeError(f"{name!r} yields its results one by one; call it by stream")


def _report(error: Exception) -> None:
    import logging

    logging.getLogger(__name__).warning("a one-way call raised", exc_info=error)
