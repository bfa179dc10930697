"""One connection to a gateway: requests on their way out, answers on their way in.

The bytes of HTTP/1.1 are h11's: it does no I/O and needs no other package.
"""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

import h11

from forebay_client.errors import BrokenError, LimitError, ProtocolError
from forebay_client.http.hidden import Hidden, Payload
from forebay_client.http.messages import Answer, Call
from forebay_client.http.route import Route
from forebay_client.http.steps import Procedure

__all__ = ["Link", "Wire", "open_link"]

HEAD_BYTES_MAX: Final = 64 << 10
"""Of the head of an answer, and of a line between its chunks."""

WRITE_BYTES: Final = 256 << 10
"""Of a body at once: a gateway that refuses it is heard after so many."""


class Wire(Protocol):
    """A stream of bytes that an I/O has opened."""

    def close(self) -> None:
        """Close it at once; never waits."""


class Link:
    """A connection, and where its exchange of HTTP stands.

    Attributes:
        used_at: when its last exchange ended; None where it has had none.
        sent: whether bytes of the exchange under way went out.
    """

    __slots__ = ("_protocol", "_route", "_wire", "name", "sent", "used_at")

    def __init__(self, wire: Wire, route: Route) -> None:
        self._wire = wire
        self._route = route
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self.name = route.url
        self.used_at: float | None = None
        self.sent = False

    def close(self) -> None:
        """Close it at once. Idempotent."""
        self._wire.close()

    def recycle(self) -> bool:
        """Make it ready for another exchange; False where it cannot have one."""
        self.used_at, self.sent = time.monotonic(), False
        if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
            self._protocol.start_next_cycle()
            return True
        return False

    def send(self, call: Call, authorization: Hidden | None, until: float) -> Procedure[None]:
        """Write a request.

        Raises:
            BrokenError: the connection broke, and no answer says why. DeadlineError.
        """
        fields = [("Host", self._route.authority), ("User-Agent", "forebay-client"), *call.fields]
        if call.body or call.method == "POST":
            fields.append(("Content-Length", str(len(call.body))))
        target = self._route.prefix + call.path
        request = h11.Request(method=call.method, target=target, headers=fields)
        head = self._protocol.send(request) or b""
        payload = Payload.authorized(head, b"Authorization", authorization)
        proxy = self._route.proxy
        if proxy is not None and self._route.tls is None:
            payload = Payload.authorized(
                payload.reveal(), b"Proxy-Authorization", proxy.authorization
            )
        wire = self._wire
        self.sent = True
        yield lambda io: io.write(wire, payload, until)
        yield from self._send_body(call.body, until)

    def head(self, until: float) -> Procedure[Answer]:
        """Read the head of the answer.

        Raises:
            BrokenError: the connection ended before it. ProtocolError. DeadlineError.
        """
        while True:
            event = yield from self._event(until)
            if isinstance(event, h11.Response):
                return Answer(event.status_code, _texts(event.headers))
            if not isinstance(event, h11.InformationalResponse):
                raise BrokenError(f"{self.name} ended the connection before it answered")

    def piece(self, until: float) -> Procedure[bytes | None]:
        """Read a piece of the answer's body; None: it is whole."""
        event = yield from self._event(until)
        return bytes(event.data) if isinstance(event, h11.Data) else None

    def body(self, bytes_max: int, until: float) -> Procedure[bytearray]:
        """Read the whole body.

        Raises:
            LimitError: it is longer.
        """
        whole = bytearray()
        while (piece := (yield from self.piece(until))) is not None:
            whole += piece
            if len(whole) > bytes_max:
                raise LimitError(
                    f"{self.name} answered with more than {bytes_max} bytes",
                    limit=bytes_max,
                    value=len(whole),
                )
        return whole

    def _send_body(self, body: bytes, until: float) -> Procedure[None]:
        wire = self._wire
        try:
            for start in range(0, len(body), WRITE_BYTES):
                piece = body[start : start + WRITE_BYTES]
                self._protocol.send(h11.Data(data=piece))
                payload = Payload(piece)
                yield lambda io, payload=payload: io.write(wire, payload, until)  # type: ignore[misc]
        except BrokenError:
            self._protocol.send_failed()
            return  # an answer that came before the end of the body says why; else reading fails
        self._protocol.send(h11.EndOfMessage())

    def _event(self, until: float) -> Procedure[Any]:
        wire = self._wire
        ended = False
        while True:
            try:
                event = self._protocol.next_event()
            except h11.RemoteProtocolError as error:
                if ended:
                    raise BrokenError(
                        f"{self.name} ended the connection before its answer was whole"
                    ) from None
                raise ProtocolError(
                    f"{self.name} does not answer as HTTP: {error}", peer=self.name
                ) from None
            if event is h11.PAUSED:
                raise ProtocolError(f"{self.name} sent more than one answer", peer=self.name)
            if event is not h11.NEED_DATA:
                return event
            data = yield lambda io: io.read(wire, until)
            ended = not data
            self._protocol.receive_data(data)


def open_link(route: Route, until: float) -> Procedure[Link]:
    """Connect to a gateway, by its proxy where it has one.

    Raises:
        BrokenError: it cannot be reached, or its certificate is not what it must be; nothing was
            sent. DeadlineError.
    """
    near = (route.host, route.port, route.url)
    if route.proxy is not None:
        near = (route.proxy.host, route.proxy.port, route.proxy.name)
    wire = yield lambda io: io.connect(*near, until)
    try:
        if route.tls is not None:
            if route.proxy is not None:
                yield from _tunnel(wire, route, until)
            secured = route.tls
            yield lambda io: io.secure(wire, secured, route.host, route.url, until)
    except BaseException as error:
        wire.close()
        if isinstance(error, BrokenError):
            error.delivered = "no"
        raise
    return Link(wire, route)


def _texts(fields: Any) -> dict[str, str]:
    """The fields of a head; h11 has made their names lower case."""
    return {name.decode("ascii"): value.decode("latin-1") for name, value in fields}


def _tunnel(wire: Wire, route: Route, until: float) -> Procedure[None]:
    """Have the proxy connect to the gateway."""
    assert route.proxy is not None
    name = route.proxy.name
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    fields = [("Host", route.tunnel), ("User-Agent", "forebay-client")]
    head = protocol.send(h11.Request(method="CONNECT", target=route.tunnel, headers=fields)) or b""
    protocol.send(h11.EndOfMessage())
    payload = Payload.authorized(head, b"Proxy-Authorization", route.proxy.authorization)
    yield lambda io: io.write(wire, payload, until)
    try:
        while (event := protocol.next_event()) is h11.NEED_DATA:
            protocol.receive_data((yield lambda io: io.read(wire, until)))
    except h11.RemoteProtocolError as error:
        raise ProtocolError(f"{name} does not answer as HTTP: {error}", peer=name) from None
    status = getattr(event, "status_code", 0)
    if not 200 <= status < 300:
        raise BrokenError(
            f"{name} answered {status} and does not connect to {route.url}; see HTTPS_PROXY and"
            " NO_PROXY, or give proxy=",
            delivered="no",
        )
