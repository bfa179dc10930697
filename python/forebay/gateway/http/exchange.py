"""One HTTP request and its answer, as the handlers of the routes see both."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from forebay.gateway.http.limits import UNREAD_BYTES
from forebay.gateway.problems import Problem

if TYPE_CHECKING:
    from forebay.gateway.tokens import Token

__all__ = ["JSON", "Exchange", "GoneError"]

JSON: Final = (b"content-type", b"application/json")

_LISTS: Final = frozenset({b"accept", b"accept-encoding", b"if-none-match", b"prefer"})
"""Headers that may come in several lines, which are one list."""

Headers = Iterable[tuple[bytes, bytes]]
Value = TypeVar("Value")

_encode = msgspec.json.Encoder().encode


class GoneError(Exception):
    """The client has left before it was answered: nothing is left to do."""


class Exchange:
    """What came, and the means to answer.

    Attributes:
        method: the HTTP method, in capitals.
        part: what the path has in the place of its parameter; empty where it has none.
        headers: by name, in lower case; of several the last one. `header` looks at them all.
        token: of the client; None on routes that need none.
        answered: the status, once an answer has begun.
    """

    __slots__ = ("_receive", "_send", "answered", "headers", "method", "part", "scope", "token")

    def __init__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self.method: str = scope["method"]
        self.part = ""
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.token: Token | None = None
        self.answered = 0

    @property
    def holder(self) -> Token:
        """The token, on a route that needs one."""
        assert self.token is not None  # the route has checked it
        return self.token

    def header(self, name: bytes) -> str | None:
        """A header as text; None where it is not there.

        Raises:
            Problem: it is there twice, and is none that has a list: who has looked before may have
                seen the other one.
        """
        value = self.headers.get(name)
        if value is None:
            return None
        if len(self.headers) < len(self.scope["headers"]):
            value = self._of_several(name)
        return value.decode("latin-1")

    def _of_several(self, name: bytes) -> bytes:
        values = [value for one, value in self.scope["headers"] if one == name]
        if len(values) > 1 and name not in _LISTS:
            text = name.decode("latin-1")
            told = f"the header {text} is given {len(values)} times"
            raise Problem(400, "malformed", told, object=text, next="give it once")
        return b", ".join(values)

    async def body(self, bytes_max: int | None = None) -> bytes:
        """The whole body.

        Args:
            bytes_max: how long it may be; None: as long as the gateway takes bodies at all.

        Raises:
            GoneError: the client left before it was complete.
            Problem: it is compressed, or longer.
        """
        if b"content-encoding" in self.headers:
            self._check_encoding(self.header(b"content-encoding") or "")
        message = await self._receive()
        if message["type"] != "http.request":
            raise GoneError
        body: bytes = message["body"]
        _check_length(len(body), bytes_max)
        if not message["more_body"]:
            return body
        # Not a list of pieces: who sends two bytes at a time has an object made of each.
        whole = bytearray(body)
        while message["more_body"]:
            message = await self._receive()
            if message["type"] != "http.request":
                raise GoneError
            whole += message["body"]
            _check_length(len(whole), bytes_max)
        return bytes(whole)

    def _check_encoding(self, coding: str) -> None:
        """Refuse a compressed body: a few bytes could be made gigabytes (RFC 9110, 12.5.3)."""
        if coding.strip().lower() not in ("", "identity"):
            raise Problem(
                415,
                "media_type",
                f"Content-Encoding is {coding!r:.100}",
                object="Content-Encoding",
                limit="identity",
                value=coding[:100],
                next="send the body as it is",
                headers=[(b"accept-encoding", b"identity")],
            )

    def query(self) -> dict[str, list[str]]:
        """The values of the query, by name.

        Raises:
            Problem: it is no query.
        """
        text = self.scope["query_string"]
        if not text:
            return {}
        try:
            return urllib.parse.parse_qs(
                text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=200
            )
        except (UnicodeDecodeError, ValueError) as error:
            raise Problem(400, "malformed", f"the query cannot be read: {error}") from None

    async def json(self, value: Any, status: int = 200, headers: Headers = ()) -> None:
        """Answer with a value as JSON."""
        await self.answer(status, _encode(value), (JSON, *headers))

    async def problem(self, problem: Problem) -> None:
        """Answer with a problem document."""
        headers = (b"content-type", b"application/problem+json"), *problem.headers
        await self.answer(problem.status, problem.body(), headers)

    async def answer(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """Answer with a body that is complete.

        Raises:
            GoneError: the client left before the last piece of a large one.
        """
        self.answered = status
        length = (b"content-length", b"%d" % len(body))
        await self._send(
            {"type": "http.response.start", "status": status, "headers": (*headers, length)}
        )
        if len(body) > UNREAD_BYTES:
            # What is written at once is the transport's, which no reader and no limit holds up.
            whole = memoryview(body)
            for first in range(0, len(body), UNREAD_BYTES):
                await self.piece(whole[first : first + UNREAD_BYTES])
            body = b""
        await self._send({"type": "http.response.body", "body": body})

    async def empty(self, status: int, headers: Headers = ()) -> None:
        """Answer 204 or 304, which have no body and no length (RFC 9110, section 8.6)."""
        await self.begin(status, headers)
        await self.piece(b"", more=False)

    async def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer whose body comes in pieces, by `piece`."""
        self.answered = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def piece(self, body: bytes | memoryview, *, more: bool = True) -> None:
        """Send a piece of the body; waits while the client does not read.

        Raises:
            GoneError: the client has left, and more would follow.
        """
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def unless_gone(self, work: Coroutine[Any, Any, Value]) -> Value:
        """What `work` returns; it is cancelled when the client leaves.

        Raises:
            GoneError: the client has left.

        Cancellation: `work` is cancelled.
        """
        task = asyncio.ensure_future(work)
        left = asyncio.ensure_future(self._until_gone())
        try:
            await asyncio.wait((task, left), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise GoneError
        finally:
            for one in (task, left):
                one.cancel()
            await asyncio.wait((task, left))

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _check_length(length: int, bytes_max: int | None) -> None:
    """Refuse a body that is longer than its route takes; the rest of it is not read."""
    if bytes_max is not None and length > bytes_max:
        told = f"the body has more than {bytes_max} bytes"
        raise Problem(413, "limit", told, object="body", limit=bytes_max, next="send a shorter one")
