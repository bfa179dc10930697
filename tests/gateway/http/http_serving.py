"""A running server with its gateway, for tests: start, ask, kill, start again."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.executor.serving import Serving

COMMAND = [sys.executable, "-m", "forebay.cli", "serve"]

APP = '''
import os
import time

import numpy

import forebay

app = forebay.App("small")


@app.request(lane="short", retries=3)
def add(a: int, b: int = 1) -> int:
    return a + b


@app.request(lane="short")
def echo(content: bytes) -> bytes:
    return content


@app.request(lane="short")
def fail(text: str) -> None:
    raise ValueError(text)


@app.request(lane="short")
def many(count: int) -> numpy.ndarray:
    return numpy.arange(count, dtype="<i4")


@app.request(lane="short")
def numbers(count: int) -> list[int]:
    return [1000] * count


@app.request(lane="long", retries=5)
def hold(path: str) -> str:
    """Wait until a file is there, or for 60 s."""
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)
    return "held"


@app.request(lane="long")
def talk(ctx: forebay.Context, path: str) -> None:
    print("grün\\n", end="", flush=True)  # in one write
    ctx.tell(1, 2, "half", "")
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)
    print("ende", flush=True)


@app.request(lane="long")
def shout(count: int) -> None:
    for number in range(count):
        print("x" * 90, number)


@app.request(lane="short", retries=3, idempotent=True)
def note(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(text + "\\n")


@app.request(lane="short", cron="0 0 1 1 *")
def yearly() -> None:
    pass
'''


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class HttpServing(Serving):
    """An application, its server and its gateway."""

    def __init__(self, directory: Path, source: str = APP, *options: str, **settings: str) -> None:
        super().__init__(directory, source)
        self.options = options
        self.environment |= settings
        self.url = ""
        self.host = "127.0.0.1"
        self.port = 0
        self.state = Path()
        self.tls: ssl.SSLContext | None = None

    def start(self, *, ready: bool = True) -> Self:
        """Start both, and return when the gateway answers."""
        import queue

        address = f"{self.host}:{self.port}"
        self.process = subprocess.Popen(
            [*COMMAND, self.file.name, "--http", address, "--json", *self.options],
            stdout=subprocess.PIPE,
            env=self.environment,
            cwd=self.file.parent,
        )
        self._events = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self.process, self._events))
        self._reader.start()
        if ready:
            self.state = Path(self.hear("ready")["state_dir"])
            told = self.hear("http")
            self.url = told["url"]
            self.port = int(self.url.rpartition(":")[2])
            self.wait_healthy()
        return self

    @property
    def token(self) -> str:
        """That of the user."""
        return (self.state / "local.token").read_text().splitlines()[0]

    @property
    def gateway_pid(self) -> int:
        """The process of the gateway that runs now."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for pid in _children(self.pid):
                if b"forebay.gateway" in _command_line(pid):
                    return pid
            time.sleep(0.01)
        raise AssertionError("no gateway runs")

    def wait_healthy(self) -> None:
        """Until the gateway answers; connections wait in its queue meanwhile."""
        assert self.call("GET", "/healthz", token=None).status == 200

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "",
        timeout: float = 20.0,
        **headers: str,
    ) -> Answer:
        """One request on a connection of its own; `_` in a header's name stands for `-`."""
        connection = self._connection(timeout)
        try:
            return self.on(connection, method, path, body, token=token, **headers)
        finally:
            connection.close()

    def on(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "",
        **headers: str,
    ) -> Answer:
        """One request on a connection that is there."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, told, response.read())

    def submit(self, name: str, **arguments: Any) -> str:
        """Submit a request; its id."""
        answer = self.call("POST", f"/v1/requests/{name}", arguments)
        assert answer.status == 202, answer
        return str(answer.json["id"])

    def result(self, id_: str, **headers: str) -> Answer:
        """The result of a request, once it has ended."""
        return self.call("GET", f"/v1/requests/{id_}/result?wait=30", timeout=40, **headers)

    def raw(self, timeout: float = 20.0) -> socket.socket:
        """A connection that speaks no HTTP by itself."""
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def head(self, method: str, path: str, *lines: str) -> bytes:
        """The head of a request, with the token."""
        all_ = (
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.token}",
            *lines,
        )
        return "".join(f"{line}\r\n" for line in (*all_, "")).encode()

    @contextmanager
    def events(self, path: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a stream."""
        connection = self._connection(20)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"Authorization": f"Bearer {self.token}", "Accept": "text/event-stream"}
        try:
            connection.request("GET", path, headers=sent)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield _events(response)
        finally:
            connection.close()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout, context=self.tls
        )

    def kill_gateway(self) -> int:
        """SIGKILL; the process that it was."""
        pid = self.gateway_pid
        os.kill(pid, signal.SIGKILL)
        return pid


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    event: dict[str, Any] = {}
    for line in response:
        text = line.decode().rstrip("\n")
        if not text and event:
            yield event
            event = {}
        elif text and not text.startswith(":"):
            name, _, value = text.partition(": ")
            event[name] = json.loads(value) if name == "data" else value


def received(connection: socket.socket) -> bytes:
    """Everything that comes until the other side closes."""
    pieces = []
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            break
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        return [
            int(one)
            for task in tasks
            for one in Path(f"/proc/{pid}/task/{task}/children").read_text().split()
        ]
    except OSError:
        return []


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
