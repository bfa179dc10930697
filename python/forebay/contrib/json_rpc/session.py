"""JSON-RPC 2.0 with one message to a line, without I/O.

Source: https://www.jsonrpc.org/specification.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from forebay.errors import ConfigError, LimitError, ProtocolError, RemoteError

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""Longest line: a program that never ends its line cannot fill the memory of its client."""

SHOWN_BYTES = 80
"""Bytes of a wrong message that the error quotes."""

METHOD_NOT_FOUND = -32601


class JsonRpcError(RemoteError):
    """A JSON-RPC call was answered with an error; the program is alive.

    Attributes:
        code: the error's number.
        data: what the program added to it, or None.
    """

    def __init__(self, message: str, *, code: int = 0, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Answer(NamedTuple):
    """The answer to a call."""

    call: int
    result: Any
    error: JsonRpcError | None


class Notification(NamedTuple):
    """A notification from the program."""

    method: str
    params: Any


class Request(NamedTuple):
    """A request from the program; `refusal` is what to send back, since requests are not served."""

    method: str
    refusal: bytes


Message = Answer | Notification | Request


class Session:
    """One conversation: numbers calls, and reads lines."""

    __slots__ = ("_buffer", "_numbers", "_searched", "waiting")

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._buffer = bytearray()
        self._searched = 0
        self.waiting: set[int] = set()
        """Calls that have not been answered, abandoned ones included."""

    def begin(
        self, method: str, args: tuple[Any, ...], params: Mapping[str, Any]
    ) -> tuple[int, bytes]:
        """A call: its number, and what to send.

        Raises:
            ConfigError: positional and named parameters at once, or one that JSON cannot express.
        """
        number = next(self._numbers)
        line = _line({"id": number}, method, args, params)
        self.waiting.add(number)
        return number, line

    @staticmethod
    def notification(method: str, args: tuple[Any, ...], params: Mapping[str, Any]) -> bytes:
        """What to send for a notification. Raises as `begin`."""
        return _line({}, method, args, params)

    def feed(self, data: bytes) -> Iterator[Message]:
        """Read received bytes.

        Raises:
            ProtocolError: a line is no JSON-RPC message.
            LimitError: a line is longer than 64 MiB.
        """
        self._buffer += data
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._searched = 0
            if line.strip():
                message = self._read(line)
                if message is not None:
                    yield message
        self._searched = len(self._buffer)
        if self._searched > MESSAGE_BYTES_MAX:
            raise LimitError(
                f"a JSON-RPC message has more than MESSAGE_BYTES_MAX, {MESSAGE_BYTES_MAX} bytes;"
                " have the program send less at once",
                limit=MESSAGE_BYTES_MAX,
                value=self._searched,
            )

    def _read(self, line: bytes) -> Message | None:
        try:
            message = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise _wrong(line, str(error)) from None
        if not isinstance(message, dict):
            raise _wrong(line, "it is no object")
        method = message.get("method")
        if isinstance(method, str):
            if message.get("id") is None:
                return Notification(method, message.get("params"))
            return Request(method, _refusal(message["id"], method))
        return self._answer(message, line)

    def _answer(self, message: dict[str, Any], line: bytes) -> Answer | None:
        number, error = message.get("id"), message.get("error")
        if error is not None and not isinstance(error, dict):
            raise _wrong(line, "its error is no object")
        if number is None and error is not None:
            raise _wrong(line, "the program could not read what it was sent")
        if not isinstance(number, int) or ("result" not in message and error is None):
            raise _wrong(line, "it is neither call nor answer")
        if number not in self.waiting:
            return None  # answered twice
        self.waiting.discard(number)
        return Answer(number, message.get("result"), None if error is None else _error(error))


def _line(head: dict[str, Any], method: str, args: tuple[Any, ...], named: Any) -> bytes:
    if args and named:
        raise ConfigError(f"{method!r}: JSON-RPC takes parameters by position or by name, not both")
    message = {"jsonrpc": "2.0", **head, "method": method}
    if args or named:
        message["params"] = args or named
    try:
        return msgspec.json.encode(message) + b"\n"
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"a parameter of {method!r} cannot be expressed in JSON: {error}"
        ) from None


def _refusal(number: Any, method: str) -> bytes:
    error = {"code": METHOD_NOT_FOUND, "message": f"this client serves no {method}"}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "error": error}) + b"\n"


def _error(error: dict[str, Any]) -> JsonRpcError:
    code, text, data = error.get("code", 0), error.get("message", ""), error.get("data")
    code = code if isinstance(code, int) else 0
    message = f"{text} (JSON-RPC error {code})"
    if data is not None:
        message += f": {data}"
    return JsonRpcError(message, code=code, data=data)


def _wrong(line: bytes, why: str) -> ProtocolError:
    shown = line[:SHOWN_BYTES]
    return ProtocolError(
        f"the program wrote {shown!r} to its stdout, which is no JSON-RPC message ({why}); "
        "what is not protocol belongs on stderr"
    )
