"""A server of HTTP whose answers a test says, with TLS where it wants that.

For what a real gateway cannot be made to do at will: break within an answer, ask to come later,
speak nonsense. It imports nothing of Forebay.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

CLOSE = b""
"""The connection is closed."""

LINE_END = b"\r\n"


class Received(NamedTuple):
    """A request as it came; `connection` counts from 0."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query)


Answer = bytes | list[bytes] | Callable[[Received], "bytes | Iterable[bytes]"]


class ScriptedServer:
    """Answers each request with the next of `answers`, and keeps what came in `received`."""

    def __init__(self, cert: Path | None = None, key: Path | None = None) -> None:
        self.received: list[Received] = []
        self._changed = threading.Condition()
        self.answers: list[Answer] = []
        self._context: ssl.SSLContext | None = None
        if cert is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(cert, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'http' if cert is None else 'https'}://127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._ended = False
        self._start(self._accept)

    def close(self) -> None:
        self._ended = True
        self.refuse()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def wait_for(self, count: int) -> None:
        """Until so many requests have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, 20)

    def refuse(self) -> None:
        """Take no connection any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        number = 0
        while not self._ended:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, accepted, number)
            number += 1

    def _serve(self, accepted: socket.socket, number: int) -> None:
        self._open.add(accepted)
        connection = accepted
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(accepted, server_side=True)
                self._open.add(connection)
            file = connection.makefile("rb")
            while (request := read_request(file, number)) is not None:
                with self._changed:
                    self.received.append(request)
                    self._changed.notify_all()
                answer = self.answers.pop(0) if self.answers else problem(500, "internal")
                made = answer(request) if callable(answer) else answer
                for piece in [made] if isinstance(made, bytes) else made:
                    if piece == CLOSE:
                        return
                    connection.sendall(piece)
        except (OSError, ValueError):  # ValueError: what came is no HTTP
            return
        finally:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            self._open -= {accepted, connection}


def read_request(file: Any, number: int) -> Received | None:
    line = file.readline()
    if not line:
        return None
    method, target, _ = line.decode().split()
    headers = {}
    while (line := file.readline().strip()) != b"":
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = file.read(int(headers.get("content-length", 0)))
    return Received(method, target, headers, body, number)


@contextmanager
def scripted(cert: Path | None = None, key: Path | None = None) -> Iterator[ScriptedServer]:
    """A server for the time of a test."""
    server = ScriptedServer(cert, key)
    try:
        yield server
    finally:
        server.close()


def answer(
    status: int, body: bytes = b"", media: str = "application/json", **headers: str
) -> bytes:
    """An answer with a length."""
    fields = {"Content-Type": media, "Content-Length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} X", *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def as_json(value: Any, status: int = 200, **headers: str) -> bytes:
    """An answer in JSON."""
    return answer(status, json.dumps(value).encode(), **headers)


def problem(status: int, code: str, retry_after: str | None = None, **members: Any) -> bytes:
    """A problem document."""
    body = {"status": status, "code": code, "message": f"{code} it is", **members}
    body.setdefault("detail", f"{body['message']}; do otherwise")
    headers = {} if retry_after is None else {"Retry_After": retry_after}
    media = "application/problem+json"
    return answer(status, json.dumps(body).encode(), media, **headers)


def accepted(id_: str = "000000000001") -> bytes:
    """What a submission is answered with."""
    return as_json({"schema": 1, "id": id_, "name": "echo", "status": "queued"}, 202)


def stream(*events: tuple[str, str, Any], end: bool = True) -> list[bytes]:
    """Server-sent events in chunks, `(id, kind, data)` each; without `end` it breaks behind it."""
    head = (
        b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    pieces = [head]
    for id_, kind, data in events:
        pieces.append(chunk(f"id: {id_}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()))
    if end:
        pieces += [chunk(b"event: end\ndata: {}\n\n"), b"0\r\n\r\n"]
    else:
        pieces.append(CLOSE)
    return pieces


def chunk(content: bytes) -> bytes:
    """A chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(content), content)
