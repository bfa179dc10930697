"""Serving one connection, one call after the other, in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NoReturn

from forebay._core import Connection
from forebay.errors import ClosedError, ConfigError
from forebay.rpc._codec import BY_NUMBER, Codec, by_name, describe

if TYPE_CHECKING:
    from forebay.rpc._serve_stream import ServedStreams

__all__ = ["Running", "current", "find_method", "serve_connection"]

OnControl = Callable[[str, tuple[Any, ...]], Any]

STREAMED = frozenset({AsyncGeneratorType, GeneratorType})
"""What a method returns that is a stream."""
_UNANSWERED = STREAMED | {CoroutineType}
_CUT_MESSAGE = 1000
"""Characters of a message that stay where all of them are too long for the caller."""

_current: ContextVar[Running] = ContextVar("forebay_rpc_current")


class Running:
    """The call that a handler is running.

    Attributes:
        id: its number on the connection.
        oneway: whether nobody waits for an answer.
    """

    __slots__ = ("_connection", "_deadline", "id", "oneway")

    def __init__(self, connection: Connection):
        self._connection = connection
        self._deadline: float | None = None
        self.id = 0
        self.oneway = False

    def begin(self, call: int, remaining: float | None, oneway: bool) -> None:
        """Stand for another call."""
        self.id = call
        self.oneway = oneway
        self._deadline = None if remaining is None else time.monotonic() + remaining

    @property
    def remaining(self) -> float | None:
        """Seconds until the caller's deadline, at least 0; None if it has none."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def cancelled(self) -> bool:
        """Whether the caller cancelled or left; looks at the socket. Cost: one system call.

        A caller that ran out of time cancels too, a moment later than `remaining` says.
        """
        return not self.oneway and self._connection.is_cancelled(self.id)


def current() -> Running:
    """The call that is running here.

    Raises:
        ConfigError: outside of a handler.
    """
    try:
        return _current.get()
    except LookupError:
        raise ConfigError("rpc.current() is for handlers: no call is running here") from None


def find_method(handler: Any, name: str) -> Callable[..., Any]:
    """The public method `name` of `handler`.

    Raises:
        AttributeError: it is private or not there.
    """
    if not isinstance(name, str) or name.startswith("_"):
        raise AttributeError(f"{name!r} is not public")
    method: Callable[..., Any] = getattr(handler, name)
    if not callable(method):
        raise AttributeError(f"{name!r} of {type(handler).__qualname__} is no method")
    return method


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


def refuse_async(name: str) -> NoReturn:
    """For a method whose work an event loop would have to run, where there is none."""
    raise TypeError(
        f"{name!r} is async, and no event loop runs here: write it as a plain method, with"
        " asyncio.run() inside where it awaits; only rpc.serve() awaits methods"
    )


def refuse_call(name: str) -> NoReturn:
    """For a call of a method that is a stream."""
    raise TypeError(f"{name!r} yields its results one by one; call it by stream or astream")


def answer_failure(
    connection: Connection, call: int, number: int, error: Exception, *, tracebacks: bool = False
) -> bool:
    """Answer a call with what was raised, in the codec `number`; true if nothing is left to send.

    Its traceback, which names files and lines of this program, goes to processes of the same user,
    and with `tracebacks` to everybody. The text is cut where the caller takes no frame of its
    length.

    Raises:
        ClosedError, BrokenError: the connection.
    """
    codec = BY_NUMBER[number]
    builtin, name, message, trace = describe(error)
    if not tracebacks and not connection.trusted:
        trace = ""
    head, _ = codec.encode((builtin, name, message, trace))
    limit = connection.answer_bytes_max
    if len(head) > limit:
        cut = f"{message[:_CUT_MESSAGE]}... (cut: frame_bytes_max of the caller is {limit})"
        head, _ = codec.encode((builtin, name, cut, ""))
    return connection.fail(call, number, head)


def _report(error: Exception) -> None:
    import logging

    logging.getLogger(__name__).warning("a one-way call raised", exc_info=error)
