"""tcp:// and tls:// between ends with our comms and ends with Dask's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from distributed.comm import connect, listen, tcp
from distributed.comm.registry import backends
from distributed.protocol import to_serialize

from forebay.dask import Security, _mixed
from tests.dask.certificates import files, sign_like_theirs, sign_version_1
from tests.loops import Run

TIMEOUT_S = 20.0
STOCK = {"tcp": tcp.TCPBackend(), "tls": tcp.TLSBackend()}
KINDS = ("ours", "stock")


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Dask's own backends behind, whatever a test puts in their place."""
    for scheme in STOCK:
        monkeypatch.setitem(backends, scheme, STOCK[scheme])


@pytest.fixture
def security(tmp_path: Path) -> Security:
    sign_like_theirs(tmp_path)
    return Security(**files(tmp_path))


class Ends:
    """Listens and connects by either backend of a scheme."""

    def __init__(self, scheme: str, security: distributed.Security) -> None:
        self.scheme = scheme
        self.accepted: asyncio.Queue[Any] = asyncio.Queue()
        self._ours = {"tcp": _mixed.TCPBackend(), "tls": _mixed.TLSBackend()}[scheme]
        self._security = security

    def use(self, kind: str) -> None:
        backends[self.scheme] = self._ours if kind == "ours" else STOCK[self.scheme]

    def listen(self, kind: str, place: str = "127.0.0.1") -> Any:
        self.use(kind)
        arguments = self._security.get_listen_args("worker") if self.scheme == "tls" else {}
        return listen(f"{self.scheme}://{place}", self.accepted.put, **arguments)

    async def pair(self, kind: str, listener: Any) -> tuple[Any, Any]:
        """Both ends of a comm to a listener; their classes tell what they speak."""
        self.use(kind)
        arguments = self._security.get_connection_args("client") if self.scheme == "tls" else {}
        comm = await connect(listener.contact_address, **arguments)
        return comm, await self.accepted.get()


def is_ours(comm: Any) -> bool:
    return isinstance(comm, _mixed.TCP | _mixed.TLS)


@contextlib.asynccontextmanager
async def closing(*comms: Any) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for comm in comms:
            comm.abort()


async def check(ours: Any, theirs: Any) -> None:
    """Send messages of all lengths both ways, and say a last word."""
    for count in (1, 100, 20_000, 1_000_000):
        array = np.arange(count)
        message = {"x": to_serialize(array), "op": "y", "list": [1, 2]}
        for sender, receiver in ((ours, theirs), (theirs, ours)):
            writing = asyncio.create_task(sender.write(message))
            got = await receiver.read()
            await writing
            assert np.array_equal(got["x"], array)
            assert got["op"] == "y"
    await theirs.write({"last": "words"})
    await theirs.close()
    assert await ours.read() == {"last": "words"}


@pytest.mark.parametrize("scheme", STOCK)
@pytest.mark.parametrize("listening", KINDS)
@pytest.mark.parametrize("connecting", KINDS)
def test_any_two_ends_understand_each_other(
    run: Run, security: Security, scheme: str, listening: str, connecting: str
) -> None:
    """A cluster is switched over one node at a time; two that are switched speak our protocol."""

    async def main() -> None:
        ends = Ends(scheme, security)
        async with ends.listen(listening) as listener:
            for _ in range(3):
                ours, theirs = await ends.pair(connecting, listener)
                async with closing(ours, theirs):
                    both = listening == connecting == "ours"
                    assert [is_ours(ours), is_ours(theirs)] == [both, both]
                    for comm in (ours, theirs):
                        assert comm.local_address.startswith(f"{scheme}://127.0.0.1:")
                        assert comm.remote_info["python"] == comm.local_info["python"]
                    assert ours.peer_address == theirs.local_address == listener.contact_address
                    assert ours.local_address == theirs.peer_address
                    await check(ours, theirs)

    run(main())


@pytest.mark.parametrize("scheme", STOCK)
@pytest.mark.parametrize("then", [KINDS, KINDS[::-1]], ids=" then ".join)
def test_a_node_may_be_switched_under_its_peers(
    run: Run, security: Security, scheme: str, then: tuple[str, str]
) -> None:
    """A worker that comes back at its address with the other comms is reached like before."""

    async def main() -> None:
        ends = Ends(scheme, security)
        place = "127.0.0.1"
        for kind in (*then, *then):
            async with ends.listen(kind, place) as listener:
                place = "{}:{}".format(*listener.get_host_port())
                for _ in range(2):
                    ours, theirs = await ends.pair("ours", listener)
                    async with closing(ours, theirs):
                        assert is_ours(ours) == is_ours(theirs) == (kind == "ours")
                        await check(ours, theirs)

    run(main())


@pytest.mark.needs("openssl")
def test_certificates_that_rustls_refuses_are_left_to_dask(run: Run, tmp_path: Path) -> None:
    """A cluster whose certificates are of X.509 version 1 goes on as it was."""
    sign_version_1(tmp_path)
    old = Security(**files(tmp_path))

    async def main() -> None:
        ends = Ends("tls", old)
        async with ends.listen("ours") as listener:
            for _ in range(2):
                ours, theirs = await ends.pair("ours", listener)
                async with closing(ours, theirs):
                    assert not is_ours(ours)
                    await check(ours, theirs)

    run(main())


def test_a_restriction_that_rustls_cannot_keep_is_left_to_dask(run: Run, tmp_path: Path) -> None:
    """A policy on ciphers holds as before."""
    sign_like_theirs(tmp_path)
    restricted = Security(**files(tmp_path), tls_ciphers="ECDHE-ECDSA-AES128-GCM-SHA256")

    async def main() -> None:
        ends = Ends("tls", restricted)
        async with ends.listen("ours") as listener:
            ours, theirs = await ends.pair("ours", listener)
            async with closing(ours, theirs):
                assert not is_ours(ours)
                await check(ours, theirs)

    run(main())


def test_encryption_that_is_required_is_required_here_too(run: Run) -> None:
    """The configuration of a cluster that must be encrypted holds for the comms in its place."""

    async def main() -> None:
        backends["tcp"] = _mixed.TCPBackend()
        with pytest.raises(RuntimeError, match="encryption required"):
            listen("tcp://127.0.0.1", print, require_encryption=True)
        async with listen("tcp://127.0.0.1", print) as listener:
            with pytest.raises(RuntimeError, match="encryption required"):
                await connect(listener.contact_address, require_encryption=True)

    run(main())


def test_a_peer_that_speaks_something_else_is_closed(run: Run) -> None:
    """A browser at a worker's port takes no memory for what its request would be as a length."""

    async def main() -> None:
        backends["tcp"] = _mixed.TCPBackend()
        async with listen("tcp://127.0.0.1", print) as listener:
            reader, writer = await asyncio.open_connection(*listener.get_host_port())
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                while await reader.read(1 << 16):
                    pass
            writer.close()

    run(main())
