"""An application, its server, and its gateway with TLS, as `forebay serve` starts them."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path
from typing import Any

from tests.gateway.http.http_serving import HttpServing
from tests.transport.certificates import Authority

APP = '''
import time
from collections.abc import Iterator

import numpy

import forebay

app = forebay.App("elsewhere")


@app.request(lane="short")
def double(n: int) -> int:
    return 2 * n


@app.request(lane="short")
def reverse(blob: bytes) -> bytes:
    return blob[::-1]


@app.request(lane="short")
def array(count: int) -> numpy.ndarray:
    return numpy.arange(count, dtype="<f8")


@app.request(lane="short")
def total(values: numpy.ndarray) -> float:
    return float(values.sum())


@app.request(lane="short")
def fail(text: str) -> None:
    """Raise what it was given."""
    raise ValueError(text)


@app.request(lane="long")
def yields(count: int) -> Iterator[bytes]:
    """Bytes of growing lengths."""
    yield from map(bytes, range(count))


@app.request(lane="long")
def talk(ctx: forebay.Context, text: str) -> str:
    """Write and tell, then wait a little."""
    for step in range(3):
        print(text, step, flush=True)
        ctx.tell(step, 3, text, "step")
        time.sleep(0.2)
    return text


@app.request(lane="short")
def mark(path: str, key: str) -> str:
    """Leave a mark of each run."""
    with open(path, "a") as file:
        file.write(key + "\\n")
    return key


@app.request(lane="long")
def count(steps: int) -> int:
    """Write numbers, a little each time."""
    for step in range(steps):
        print(step, flush=True)
        time.sleep(0.02)
    return steps


@app.request(lane="long")
def hold(seconds: float = 60.0) -> None:
    """Wait."""
    time.sleep(seconds)
'''


class TlsServing(HttpServing):
    """All three; `options` are the arguments of a client beside the URL."""

    def __init__(self, directory: Path, source: str = APP) -> None:
        self.authority = Authority(directory / "authority")
        signed = self.authority.sign("gateway")
        tls = ("--tls-cert", str(signed.cert), "--tls-key", str(signed.key))
        super().__init__(directory, source, *tls)

    def wait_healthy(self) -> None:
        """Until the gateway answers."""
        context = ssl.create_default_context(cafile=self.authority.ca)
        with urllib.request.urlopen(f"{self.url}/healthz", timeout=20, context=context) as answer:
            assert answer.status == 200

    @property
    def token_file(self) -> Path:
        """Of the user."""
        return self.state / "local.token"

    @property
    def client_options(self) -> dict[str, Any]:
        """The arguments of a client beside the URL."""
        return {"token_file": str(self.token_file), "ca_file": str(self.authority.ca)}
