"""How the client and the server write to each other: frames of rpc with heads in msgpack.

A call's head is `[method, [argument...], nil]`, an answer's `[0, value...]` or `[1, refusal]`.
A *blob*, which is the arguments or the result of a request, lies in the head below
`BLOB_BYTES_MAX`; above, nil stands there and the blob is the frame's only segment.
"""

from __future__ import annotations

import select
from collections.abc import Coroutine
from typing import Any

from msgspec import msgpack

from forebay._core import Connection
from forebay.errors import ConfigError, Error, ProtocolError, remote_error
from forebay.executor.wire.errors import refusal_error
from forebay.executor.wire.protocol import PROTOCOL
from forebay.rpc import Channel
from forebay.rpc._internal import BY_NUMBER, Segments

__all__ = ["MSGPACK", "Answers", "Message", "returned", "submission", "value_of"]

BLOB_BYTES_MAX = 64 << 10
"""From here on a blob travels beside the head: it is not copied into it, nor scanned with it."""

MSGPACK = 0
"""The number of the codec in a frame."""

Message = tuple[bytes, Segments]
"""A head and its segments."""

_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder().decode


def submission(
    method: str,
    name: str,
    arguments: bytes,
    options: dict[str, Any] | None,
    token: int | None,
    by: str | None = None,
) -> Message:
    """The message of a `submit` or `run`; `by` is whom the gateway acts for.

    Raises:
        ConfigError: the name or an option does not travel: a number beyond 64 bits, half a letter.
    """
    small = len(arguments) < BLOB_BYTES_MAX
    named = None if by is None else {"by": by}
    call = method, (name, arguments if small else None, options, token), named
    try:
        return _encode(call), None if small else [arguments]
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise ConfigError(f"request {name!r}: its options {options}: {error}") from error


def message(method: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Message:
    """The message of any other call; without a method it is made already, and is `args`."""
    return (_encode((method, args, kwargs)), None) if method else args


def read(head: Any, segments: Segments) -> Any:
    """An answer or an item, with its blob put in its place."""
    told = _decode(head)
    if segments:
        told[-1] = segments[0]
    return told


def value_of(told: Any, peer: str) -> list[Any]:
    """The values of an answer.

    Raises:
        the error that the refusal stands for. ProtocolError: it is no answer.
    """
    if isinstance(told, BaseException):
        raise told
    if type(told) is list and told:
        if told[0] == 0:
            return told
        if told[0] == 1 and len(told) == 2:
            raise refusal_error(told[1])
    raise ProtocolError(f"{peer} answered with {told!r:.80}, which is no answer", peer=peer)


def returned(values: list[Any]) -> Any:
    """What a method gave, of the values of its answer: one value, or a list of several."""
    return values[1] if len(values) == 2 else values[1:]


class Answers(Channel):
    """A connection to a server of requests.

    Calls and streams of a channel work on it as ever; their results are answers as `read` makes
    them. Threads and loops: as of `Channel`.
    """

    __slots__ = ()

    def __init__(self, connection: Connection, name: str) -> None:
        super().__init__(connection, codec="msgpack", name=name)
        self._encode_call = message
        self._decode = read

    def send(self, frame: Message) -> int:
        """Start a call and return its id, once the kernel has it.

        Cost: one system call.
        """
        connection = self._connection
        call = connection.begin(MSGPACK, frame[0], frame[1], 0)
        if connection.outbox_bytes:
            connection.drain()
        return call

    def tell(self, frame: Message) -> None:
        """Send a call that has no answer; it never waits.

        What the kernel does not take at once goes out with whoever waits next.
        """
        self._connection.start(MSGPACK, frame[0], frame[1], None, 0, True)

    def greet(self) -> None:
        """Say which protocol this client speaks; it never waits.

        A server that does not know it refuses every later call, and says why. One of protocol 1
        passes it over.
        """
        self.tell(message("hello", (PROTOCOL,)))

    def settle(self, call: int, timeout: float | None) -> Any:
        """Wait for the answer to a call that was sent; past the timeout the call goes on.

        An answer is given again until `release`: Ctrl-C may come after it has, and before whoever
        asked has it.
        """
        kept = self._kept
        if call in kept:
            outcome = kept[call]
        else:
            outcome = self._connection.settle(call, MSGPACK, timeout, kept)
        try:
            return _decode(outcome) if type(outcome) is bytes else self._finish(outcome)
        except Error:
            kept.pop(call, None)
            raise

    def release(self, call: int) -> None:
        """Forget an answer that `settle` gave."""
        self._kept.pop(call, None)

    def call_frame(self, frame: Message, timeout: float | None) -> Coroutine[Any, Any, Any]:
        """Send a call whose frame is made already, and await its answer."""
        return self.on_loop.call("", frame, timeout=timeout)

    def give_up(self, call: int) -> None:
        """Drop the answer to a call that was sent; never waits."""
        self._kept.pop(call, None)
        self._connection.cancel(call)

    @property
    def is_spent(self) -> bool:
        """Whether new calls need another connection: it is broken, or the server reads no more."""
        return self.broken or self.leaving

    def wait_gone(self, timeout: float) -> bool:
        """Wait until the peer has closed its end; whether it has."""
        descriptor = self._connection.fileno()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        return bool(poll.poll(timeout * 1000))

    def _finish(self, outcome: Any) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        if type(outcome) is not tuple:
            return read(outcome, None)
        raised, number, head, segments = outcome
        self._check_codec(number)
        if raised:
            raise remote_error(*BY_NUMBER[MSGPACK].decode(head, segments or None))
        return read(head, segments)
