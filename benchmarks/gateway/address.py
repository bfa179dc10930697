"""A free port of loopback, and an HTTP client of the standard library, the same for everyone."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass, field

HOST = "127.0.0.1"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Address:
    """Where a server listens, and what each request to it says of itself.

    Attributes:
        port: on loopback.
        headers: of each request.
    """

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        """A keep-alive connection."""
        return http.client.HTTPConnection(HOST, self.port, timeout=TIMEOUT_S)

    def answers(self, path: str) -> bool:
        """Whether a GET of the path is answered with 200."""
        try:
            connection = self.connect()
            connection.request("GET", path, headers=self.headers)
            return connection.getresponse().status == 200
        except OSError:
            return False


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def get(
    connection: http.client.HTTPConnection, address: Address, path: str, **headers: str
) -> bytes:
    """The body of a GET.

    Raises:
        ValueError: the answer is not a 200.
    """
    connection.request("GET", path, headers=address.headers | headers)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise ValueError(f"GET {path} was answered {answer.status}: {body[:200]!r}")
    return body


def post(connection: http.client.HTTPConnection, address: Address, path: str, body: bytes) -> bytes:
    """The body of the answer to a POST of JSON.

    Raises:
        ValueError: the answer is no success.
    """
    headers = address.headers | {"Content-Type": "application/json"}
    connection.request("POST", path, body=body, headers=headers)
    answer = connection.getresponse()
    told = answer.read()
    if answer.status >= 300:
        raise ValueError(f"POST {path} was answered {answer.status}: {told[:200]!r}")
    return told
