"""What servers of the tests serve, and where."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay import rpc
from forebay.transport import Tls
from tests.transport.certificates import Authority

ANY = {"tcp": "tcp://127.0.0.1:0", "tls": "tls://localhost:0"}


class Handler:
    """Some methods that await and some that do not."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.seen: list[Any] = []
        self.gate: asyncio.Event | None = None

    def echo(self, value: Any) -> Any:
        return value

    def note(self, value: Any) -> None:
        self.seen.append(value)

    async def later(self, value: Any) -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
        return value

    async def wait(self) -> str:
        """Until the test opens the gate."""
        self.gate = self.gate or asyncio.Event()
        self.seen.append("waits")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "waited"

    async def count(self, stop: int) -> AsyncIterator[int]:
        """Numbers below `stop`, in their time."""
        try:
            for number in range(stop):
                await asyncio.sleep(0)
                yield number
        finally:
            self.seen.append("left")

    async def fail(self) -> None:
        raise KeyError("lost")

    async def remaining(self) -> float | None:
        return rpc.current().remaining


class Place:
    """One address of a server, and what both ends say of TLS."""

    def __init__(self, scheme: str, folder: Path):
        self.scheme = scheme
        self.url = ANY.get(scheme, f"unix://{folder}/own/s")
        self.serving: dict[str, Any] = {}
        self.calling: dict[str, Any] = {}
        if scheme == "tls":
            authority = Authority(folder / "pki")
            signed = authority.sign("server")
            self.serving["tls"] = Tls.server(cert=signed.cert, key=signed.key)
            self.calling["tls"] = Tls.client(ca=authority.ca)

    def serve(self, handler: Any, **more: Any) -> rpc.Server:
        return rpc.serve(handler, more.pop("url", self.url), **self.serving, **more)

    def connect(self, url: str, **more: Any) -> rpc.PendingChannel:
        return rpc.connect(url, **self.calling, **more)


@pytest.fixture(params=["tcp", "tls", "unix"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a server may be, over each kind of connection."""
    return Place(request.param, tmp_path)


async def until(condition: Any) -> None:
    """Return once `condition` holds; the test's own deadline ends it."""
    while not condition():  # noqa: ASYNC110 - the event is in another task's state
        await asyncio.sleep(0)
