"""A receiver of webhooks: a real HTTP server, whose answers a test decides."""

from __future__ import annotations

import contextlib
import http.server
import json
import queue
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tests.transport.certificates import Signed

Answer = Callable[["Handler"], None]
"""Answers one call; what was sent has been read."""


@dataclass(frozen=True)
class Call:
    """What a receiver was sent."""

    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def id(self) -> str:
        """The id of the webhook, the same for all tries."""
        return self.headers["webhook-id"]

    @property
    def told(self) -> dict[str, Any]:
        """What the body says."""
        told: dict[str, Any] = json.loads(self.body)
        return told


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    server: _Server

    def do_POST(self) -> None:
        """Note what was sent, and answer as the test says."""
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answers = self.server.receiver.answers
        self.server.receiver.calls.put(Call(headers, body, time.monotonic()))
        with contextlib.suppress(OSError):  # the caller gave up
            (answers.pop(0) if answers else status(204))(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # the end of a receiver waits for them
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that leaves, or whose handshake fails, is what tests want."""


class Receiver:
    """Listens at a port of its own, from `start` to `stop`; it may start again there.

    Attributes:
        calls: what was sent, in order.
        answers: of the next calls; those beyond get 204.
    """

    def __init__(self, signed: Signed | None = None) -> None:
        self.calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self.answers: list[Answer] = []
        self._signed = signed
        self._port = 0
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "http" if self._signed is None else "https"
        return f"{scheme}://localhost:{self._port}/hook?key=1"

    def start(self) -> None:
        """Listen."""
        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._server.receiver = self
        self._port = self._server.server_port
        if self._signed is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self._signed.cert, self._signed.key)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Listen no more: connections are refused."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()

    def call(self, timeout: float = 30.0) -> Call:
        """The next call."""
        return self.calls.get(timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    """Answer with a status."""

    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def late(released: threading.Event) -> Answer:
    """Answer 204 once it is released."""

    def answer(handler: Handler) -> None:
        released.wait(60)
        status(204)(handler)

    return answer
