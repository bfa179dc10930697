"""The call that a handler is running: its method, its deadline, its failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

from forebay._core import Connection
from forebay.errors import ConfigError
from forebay.rpc._codec import BY_NUMBER, describe

__all__ = ["Running", "answer_failure", "current", "find_method", "refuse_async"]

_CUT_MESSAGE = 1000
"""Characters of a message that stay where all of them are too long for the caller."""

_current: ContextVar[Running] = ContextVar("forebay_rpc_current")


class Running:
    """The call that a handler is running.

    Attributes:
        id: its number on the connection.
        oneway: whether the caller expects no answer.
    """

    __slots__ = ("_connection", "_deadline", "id", "oneway")

    def __init__(self, connection: Connection):
        self._connection = connection
        self._deadline: float | None = None
        self.id = 0
        self.oneway = False

    def begin(self, call: int, remaining: float | None, oneway: bool) -> None:
        """Describe another call from now on."""
        self.id = call
        self.oneway = oneway
        self._deadline = None if remaining is None else time.monotonic() + remaining

    @property
    def remaining(self) -> float | None:
        """Seconds until the caller's deadline, at least 0; None if it has none."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def cancelled(self) -> bool:
        """Whether the caller cancelled or left; polls the socket. Cost: one system call.

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


def refuse_async(name: str) -> NoReturn:
    """Refuse a method that needs an event loop in a thread that runs none."""
    raise TypeError(
        f"{name!r} is async, and no event loop runs here: write it as a plain method, with"
        " asyncio.run() inside where it awaits; only rpc.serve() awaits methods"
    )


def answer_failure(
    connection: Connection, call: int, number: int, error: Exception, *, tracebacks: bool = False
) -> bool:
    """Answer a call with what was raised, in the codec `number`; true if nothing is left to send.

    Its traceback, which names files and lines of this program, goes to processes of the same user,
    and with `tracebacks` to every caller. The text is cut where the caller takes no frame of its
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
