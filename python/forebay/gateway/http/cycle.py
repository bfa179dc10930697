"""One HTTP request on its connection: what the application receives and sends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from forebay.gateway.http.exchange import GoneError

if TYPE_CHECKING:
    from forebay.gateway.http.protocol import Protocol
    from forebay.gateway.http.state import State

__all__ = ["Cycle", "Flow"]

_log = logging.getLogger(__name__)

BODILESS: Final = frozenset({204, 304})
"""Answers without a body, which have no length either (RFC 9110, section 6.4.1)."""

_FAULT: Final = (
    b'{"type":"/problems/internal","title":"Internal Server Error","status":500,"code":"internal",'
    b'"message":"the gateway failed; see its log"}'
)


class Flow(FlowControl):
    """When a connection is read and written; it is not read while too much of it waits."""

    def __init__(self, protocol: Protocol, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        """Read on, where there is room for further requests."""
        if self.read_paused and not self._protocol.is_full:
            super().resume_reading()


class Cycle:
    """One request.

    What uvicorn's does, with one write for head and body, without a check of our own headers, and
    without the parts of ASGI that the gateway does not use.
    """

    __slots__ = (
        "_head",
        "_is_head",
        "_on_cut",
        "_on_response",
        "_pieces",
        "_state",
        "_transport",
        "chunked",
        "disconnected",
        "flow",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
        "unread_bytes",
        "waiting_for_100_continue",
    )

    def __init__(self, protocol: Protocol, state: State, *, keep_alive: bool) -> None:
        self.scope = protocol.scope
        self.flow = protocol.flow
        self.message_event = asyncio.Event()
        self.keep_alive = keep_alive
        self.disconnected = False
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.more_body = True
        self.unread_bytes = 0
        self._pieces: list[bytes] = []
        self.response_started = False
        self.response_complete = False
        self.chunked = False
        self._transport = protocol.transport
        self._on_response: Callable[[], None] = protocol.on_response_complete
        self._on_cut: Callable[[], None] = protocol.on_response_cut
        self._state = state
        self._head = b""
        self._is_head = self.scope["method"] == "HEAD"

    def disconnect(self) -> None:
        """The client is gone, or is not to be heard any more."""
        if not self.response_complete:
            self.disconnected = True
        self._forget_body()
        self.message_event.set()

    def take(self, body: bytes) -> None:
        """Keep a piece of the body until the application asks for it."""
        self._pieces.append(body)
        self.unread_bytes += len(body)
        self.message_event.set()

    def _forget_body(self) -> None:
        self._pieces.clear()
        self.unread_bytes = 0

    async def run_asgi(self, app: Any) -> None:
        """Have the application answer; its own failures end the connection alone."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._transport.abort()
            raise
        except Exception:
            _log.exception("%s %s failed", self.scope["method"], self.scope["path"])
            await self._fail()
        else:
            if not self.response_complete and not self.disconnected:
                self._on_cut()
        finally:
            self._on_response = self._on_cut = _nothing

    async def _fail(self) -> None:
        if self.response_started:
            self._transport.abort()  # the client must not take what it has for the whole
            return
        length = b"%d" % len(_FAULT)
        headers = [(b"content-type", b"application/problem+json"), (b"content-length", length)]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": _FAULT})

    async def receive(self) -> dict[str, Any]:
        """The next piece of the body, or that the client has left."""
        may_ask = not self.response_started and not self._transport.is_closing()
        if self.waiting_for_100_continue and may_ask:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body = b"".join(self._pieces)
        self._forget_body()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Any) -> None:
        """Send the head, or a piece of the body; waits for a client that does not read.

        What comes behind the end of the answer, from another task, is left out.

        Raises:
            GoneError: the client has left, and this piece is not the last one.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.response_complete:
            return
        if self.disconnected:
            if message.get("more_body", False):
                raise GoneError
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], message["headers"])
        else:
            self._write(message.get("body", b""), more=message.get("more_body", False))

    def _begin(self, status: int, headers: Any) -> None:
        """Keep the head until the first piece of the body, which goes out with it."""
        self.response_started = True
        if self.waiting_for_100_continue:
            self.keep_alive = False  # whether its body comes nevertheless, nobody knows
        lines = [STATUS_LINE[status], self._state.lines]
        chunked = status not in BODILESS
        for name, value in headers:
            if name == b"content-length":
                chunked = False
            elif name == b"connection":
                self.keep_alive = False
            lines += name, b": ", value, b"\r\n"
        if chunked and self.scope["http_version"] == "1.0":
            self.keep_alive = chunked = False  # the end of the connection is that of the body
        self.chunked = chunked and not self._is_head
        if self.chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def _write(self, body: Any, *, more: bool) -> None:
        head, self._head = self._head, b""
        if self._is_head:
            body = b""
        elif self.chunked:
            if body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if not more:
                body = b"%b0\r\n\r\n" % body
        if head:
            body = head + body if body else head
        if body:
            self._transport.write(body)
        if not more:
            self.response_complete = True
            self._forget_body()
            self.message_event.set()
            if not self.keep_alive:
                self._transport.close()
            self._on_response()


def _nothing() -> None:
    """Called in place of the protocol, which has gone on."""
