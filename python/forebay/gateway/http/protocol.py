"""One connection: uvicorn's protocol, with the deadlines and limits that it does not have.

A connection has one deadline, which the phase that it is in decides; a look at all of them each
second (`State.look`) costs less than a timer for each phase of each request.

| phase | from | to | its deadline ends it |
|---|---|---|---|
| SILENT | the connection | the first byte | without a word |
| HEADERS | the first byte of a request | the end of its headers | with 408 |
| BODY | the end of the headers | the end of the body; each byte renews it | with 408 |
| ANSWERING | the end of the body | the answer | never: the application has its own |
| IDLE | the answer | the next request | without a word |
| REFUSED | a refusal behind other requests | their answers | never: the application has its own |
| LINGERING | a refusal, after which nothing is read | the client's end | at once |
| CLOSING | the last answer | the client has read it; each byte renews it | at once |
"""

from __future__ import annotations

import contextvars
import enum
import math
import urllib.parse
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from forebay.gateway.http import limits
from forebay.gateway.http.census import UNKNOWN
from forebay.gateway.http.cycle import Cycle, Flow
from forebay.gateway.http.head import check_coding, length_of, malformed, target_of
from forebay.gateway.problems import Problem

if TYPE_CHECKING:
    from uvicorn.config import Config

    from forebay.gateway.http.state import State

__all__ = ["Protocol"]


class Phase(enum.IntEnum):
    """What a connection does; the module's docstring has them all."""

    SILENT = 0
    HEADERS = 1
    BODY = 2
    ANSWERING = 3
    IDLE = 4
    REFUSED = 5
    LINGERING = 6
    CLOSING = 7


_PARSED: Final = (Phase.HEADERS, Phase.BODY)

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


_VERSIONS: Final = ("1.1", "1.0")


class Protocol(HttpToolsProtocol):
    """One connection of a client.

    Loop affinity: the gateway's.

    Args:
        counted_as: the address by which the census has the connection already, if so.
    """

    def __init__(self, config: Config, state: State, *, counted_as: str | None = None) -> None:
        super().__init__(config, state, {})
        self._state = state
        self._census = state.census
        self._is_counted = counted_as is not None
        self._address = counted_as or UNKNOWN
        self._phase = Phase.SILENT
        self._deadline = math.inf
        self._unread_deadline = math.inf
        """Of a client that has something to read and does not; with `_unread` bytes."""
        self._unread = 0
        self._header_bytes = 0
        self._unparsed_bytes = 0
        """Fed to the parser since it has told of a field or of a piece of the body."""
        self._body_bytes = 0
        self._refusal: Problem | None = None
        """Written once the requests before are answered."""
        self._held = b""
        """Received, and not looked at while too many requests wait."""
        self._answering: Cycle | None = None
        """The request that the application has."""
        self._behind: deque[Cycle] = deque()
        """Those that wait for its answer, the oldest first."""

    # The transport's.

    def connection_made(self, transport: Any) -> None:
        """A client has come."""
        super().connection_made(transport)
        self.flow = Flow(self, transport)
        transport.set_write_buffer_limits(high=limits.UNREAD_BYTES)
        exceeded = None if self._is_counted else self._enter()
        if exceeded is not None:
            self._turn_away(exceeded)
        else:
            self._set(Phase.SILENT, limits.HEADERS_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whichever side."""
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.disconnect()
        self._behind.clear()
        self._held = b""
        self._forget_body()
        self._census.leave(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._phase >= Phase.REFUSED or self.transport.is_closing():
            return
        if self._phase is Phase.SILENT:
            self._set(Phase.HEADERS, limits.HEADERS_S)
        if len(data) <= limits.PIECE_BYTES and not self._behind and not self._held:
            self._feed(data)
        else:
            self._held += data
            self._feed_held()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._unread_deadline = self.loop.time() + limits.UNREAD_S

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._phase is not Phase.CLOSING:
            self._unread_deadline = math.inf

    def shutdown(self) -> None:
        """The gateway ends: close the connection, or have the answer under way be the last one."""
        self._behind.clear()
        self._held = b""
        if self._answering is None:
            self._close()
        else:
            self._answering.keep_alive = False

    # The clock's.

    def look(self, now: float) -> None:
        """End the connection if its time has run out.

        Args:
            now: the time of the loop.
        """
        if now >= self._unread_deadline and not self._has_read(now):
            self.transport.abort()
            return
        if self.flow.read_paused:
            self._wait_for_us(now)
        if now < self._deadline:
            return
        self._deadline = math.inf
        if self._phase is Phase.HEADERS:
            self._refuse(_late("headers", limits.HEADERS_S))
        elif self._phase is Phase.BODY:
            self._refuse(_late("body", limits.BODY_S))
        elif self._phase is Phase.LINGERING:
            self.transport.abort()
        else:
            self._close()

    def _wait_for_us(self, now: float) -> None:
        """Give a client whose bytes we do not read the whole time of its phase again."""
        if self._phase is Phase.HEADERS:
            self._deadline = now + limits.HEADERS_S
        elif self._phase is Phase.BODY:
            self._deadline = now + limits.BODY_S

    def _has_read(self, now: float) -> bool:
        """Whether the client has read something since this was asked; then it has more time."""
        before, self._unread = self._unread, self.transport.get_write_buffer_size()
        self._unread_deadline = now + limits.UNREAD_S
        return self._unread < before

    # The parser's.

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._header_bytes = self._unparsed_bytes = 0
        self._set(Phase.HEADERS, limits.HEADERS_S)

    def on_url(self, url: bytes) -> None:
        """A piece of the path and query."""
        self.url += url
        if len(self.url) > limits.PATH_BYTES_MAX:
            raise _long(414, "path", limits.PATH_BYTES_MAX)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a field behind a chunked body, which counts and is left out."""
        self._unparsed_bytes = 0
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > limits.HEADER_BYTES_MAX:
            raise _long(431, "headers", limits.HEADER_BYTES_MAX)
        if self._phase is Phase.BODY:
            return
        if len(self.headers) >= limits.HEADERS_MAX:
            raise _long(431, "headers", limits.HEADERS_MAX, "fields")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The headers are complete: the application begins, unless another request is before."""
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            raise malformed(f"version {version}")
        self.scope = self._scope(version)
        keep_alive = self.parser.should_keep_alive() and not self.parser.should_upgrade()
        self._check_length()
        self._set(Phase.BODY, limits.BODY_S)
        cycle: Any = Cycle(self, self._state, keep_alive=keep_alive)
        self.cycle = cycle
        if self._answering is None:
            self._start(cycle)
        else:
            self.flow.pause_reading()
            self._behind.append(cycle)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._unparsed_bytes = 0
        cycle: Any = self.cycle
        if cycle.response_complete:
            return
        count = len(body)
        self._body_bytes += count
        self._census.body_bytes += count
        if self._body_bytes > self._census.max_body_bytes:
            raise _long(413, "body", self._census.max_body_bytes)
        if self._census.bodies_full:
            raise _crowded()
        self._deadline = self.loop.time() + limits.BODY_S
        cycle.take(body)
        if cycle.unread_bytes > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """The body is complete."""
        self._forget_body()
        if self.cycle.response_complete:
            self._set(Phase.IDLE, limits.IDLE_S)
            return
        self._phase, self._deadline = Phase.ANSWERING, math.inf
        self.cycle.more_body = False
        self.cycle.message_event.set()

    # The application's.

    @property
    def is_full(self) -> bool:
        """Whether so many requests, or so much of a body, wait that no more is read."""
        newest: Any = self.cycle
        return (
            len(self._behind) >= limits.PIPELINED_MAX
            or bool(self._held)
            or (newest is not None and newest.unread_bytes > HIGH_WATER_LIMIT)
        )

    def on_response_complete(self) -> None:
        """The answer is written: the next request may begin."""
        self._state.total_requests += 1
        self._answering = None
        if self.transport.is_closing():
            self._close()
            return
        if self._behind:
            self._start(self._behind.popleft())
        elif self._refusal is not None:
            self._end_with(self._refusal)
            return
        elif self._phase is Phase.ANSWERING:
            self._set(Phase.IDLE, limits.IDLE_S)
        if self._held:
            self.loop.call_soon(self._feed_held)
        else:
            self.flow.resume_reading()

    def on_response_cut(self) -> None:
        """The application has ended before its answer has: the connection ends with it."""
        self._answering = None
        self._close()

    # Its own.

    def _set(self, phase: Phase, seconds: float) -> None:
        self._phase = phase
        self._deadline = self.loop.time() + seconds

    def _start(self, cycle: Any) -> None:
        self._answering = cycle
        # In an empty context: the one of this callback may be that of another request.
        task = self.loop.create_task(cycle.run_asgi(self.app), context=contextvars.Context())
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _scope(self, version: str) -> Any:
        check_coding(self.headers, version)
        target = target_of(self.url, self.headers)
        path = target.path.decode("ascii")
        if "%" in path:
            path = urllib.parse.unquote(path)
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": self.parser.get_method().decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": target.path,
            "query_string": target.query,
            "headers": target.headers,
        }

    def _check_length(self) -> None:
        for name, value in self.headers:
            if name == b"content-length" and length_of(value) > self._census.max_body_bytes:
                raise _long(413, "body", self._census.max_body_bytes)

    def _feed(self, data: Any) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # answered as a request without one, and closed behind it
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, Problem) else malformed(error))
            return
        if self._phase in _PARSED:  # a name or value that does not end is in the parser
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > limits.HEADER_BYTES_MAX + len(data):
                self._refuse(_long(431, "headers", limits.HEADER_BYTES_MAX))

    def _feed_held(self) -> None:
        """Look at what was received, as far as there is room for requests."""
        held = memoryview(self._held)
        done = 0
        while done < len(held) and len(self._behind) < limits.PIPELINED_MAX:
            if self._phase >= Phase.REFUSED or self.transport.is_closing():
                return
            in_body = self._phase is Phase.BODY
            count = limits.BODY_PIECE_BYTES if in_body else limits.PIECE_BYTES
            self._feed(held[done : done + count])
            done += count
        self._held = bytes(held[done:])
        if self._held:
            self.flow.pause_reading()
        elif not self.transport.is_closing() and not self._behind:
            self.flow.resume_reading()

    def _forget_body(self) -> None:
        self._census.body_bytes -= self._body_bytes
        self._body_bytes = 0

    def _enter(self) -> str | None:
        if self.client is not None:
            self._address = self.client[0]
        return self._census.enter(self._address)

    def _turn_away(self, limit: str) -> None:
        """Answer a connection that is one too many, and close it."""
        refusal = Problem(
            503,
            "limit",
            f"there are too many connections: {limit} is reached",
            object="connections",
            limit=limit,
            next="try again",
            headers=[(b"retry-after", b"1")],
        )
        self._refuse(refusal)

    def _refuse(self, problem: Problem) -> None:
        """Answer a request that is not to be read further, and close the connection.

        Those before it are answered first. Where its own answer is under way already, or was given
        before its body had come, the connection is closed alone: the refusal would be read as the
        answer to another request.
        """
        if self.transport.is_closing():
            return
        in_body = self._phase is Phase.BODY
        newest: Any = self.cycle
        answering = self._answering
        self._held = b""
        self._forget_body()
        if answering is None:
            self._end_with(None if in_body else problem)
        elif answering is newest and in_body:
            answering.disconnect()
            self._answering = None
            self._end_with(None if answering.response_started else problem)
        else:
            if in_body:
                self._behind.pop().disconnect()  # it is the newest
            self._refusal = problem
            self._phase, self._deadline = Phase.REFUSED, math.inf
            self.flow.resume_reading()  # what comes is left out; that the client leaves is not

    def _end_with(self, problem: Problem | None) -> None:
        """Write the last answer of the connection, if there is one, and close it."""
        if problem is not None:
            self.transport.write(_written(problem, self._state.lines))
        self._linger()

    def _close(self) -> None:
        """Close it once the client has read what was written, if it reads."""
        self._phase, self._deadline = Phase.CLOSING, math.inf
        self._unread = self.transport.get_write_buffer_size()
        self._unread_deadline = self.loop.time() + limits.UNREAD_S
        self.transport.close()

    def _linger(self) -> None:
        """Close it for writing, and go on reading for a moment, so that the refusal arrives."""
        if self.scheme == "https" or not self.transport.can_write_eof():
            self._close()
            return
        self.transport.write_eof()
        self._set(Phase.LINGERING, limits.LINGER_S)
        self.flow.resume_reading()


def _written(problem: Problem, common: bytes) -> bytes:
    body = problem.body()
    lines = [STATUS_LINE[problem.status], common]
    for name, value in problem.headers:
        lines += name, b": ", value, b"\r\n"
    lines.append(
        b"content-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        % len(body)
    )
    return b"".join([*lines, body])


def _late(what: str, seconds: float) -> Problem:
    return Problem(
        408,
        "timeout",
        f"the {what} did not come within {seconds:g} s",
        object=what,
        limit=seconds,
        next="send the request again",
    )


def _long(status: int, what: str, most: int, unit: str = "bytes") -> Problem:
    return Problem(
        status,
        "limit",
        f"the {what} may have {most} {unit}",
        object=what,
        limit=most,
        next="send less",
    )


def _crowded() -> Problem:
    return Problem(
        503,
        "limit",
        "too much of other requests is under way",
        object="body",
        next="try again",
        headers=[(b"retry-after", b"1")],
    )
