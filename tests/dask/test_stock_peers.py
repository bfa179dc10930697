"""Peers with Dask's own comms at a listener of ours: both sides are told what is wrong."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import distributed
import pytest
from distributed.comm import CommClosedError, connect, listen
from distributed.comm.registry import backends

from forebay.dask import Backend, TLSBackend
from forebay.dask._stock import encoded
from tests.dask.certificates import files, sign_like_theirs
from tests.loops import Run

TIMEOUT_S = 20.0
PLAIN = "forebay://127.0.0.1"
ENCRYPTED = "forebay+tls://127.0.0.1"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Dask find the backends, installed or not."""
    monkeypatch.setitem(backends, "forebay", Backend())
    monkeypatch.setitem(backends, "forebay+tls", TLSBackend())


class Server:
    """What handles the comms of a listener, with a security of Dask's own, as a scheduler has."""

    def __init__(self, security: distributed.Security) -> None:
        self.security = security
        self.met: list[Any] = []

    def handle(self, comm: Any) -> None:
        self.met.append(comm)

    def listen(self, address: str) -> Any:
        encrypted = address == ENCRYPTED
        arguments = self.security.get_listen_args("worker") if encrypted else {}
        return listen(address, self.handle, **arguments)

    async def connect(self, scheme: str, listener: Any) -> Any:
        """Connect to a listener by another scheme; without one, by a bare address."""
        host, port = listener.get_host_port()
        encrypted = scheme == "tls://"
        arguments = self.security.get_connection_args("client") if encrypted else {}
        return await connect(f"{scheme}{host}:{port}", **arguments)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    sign_like_theirs(tmp_path)
    return Server(distributed.Security(**files(tmp_path)))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What Dask's logging shows an operator at once."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("distributed.comm")
    ]


@pytest.mark.parametrize(
    ("address", "scheme"),
    [(PLAIN, "tcp://"), (PLAIN, ""), (ENCRYPTED, "tls://"), (ENCRYPTED, "tcp://")],
)
def test_it_learns_where_to_connect_and_the_operator_who_it_was(
    run: Run, server: Server, caplog: pytest.LogCaptureFixture, address: str, scheme: str
) -> None:
    """Whoever forgets to change an address reads what to change, on either side."""

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), server.listen(address) as listener:
            with pytest.raises(TypeError) as caught:
                await server.connect(scheme, listener)
            assert f"connect to {listener.contact_address} instead" in str(caught.value)
            assert "without a scheme is one of tcp://" in str(caught.value)
            assert server.met == []
            [warning] = warnings(caplog)
            assert "127.0.0.1:" in warning
            assert f"and is refused: {listener.contact_address} is served by" in warning

    run(main())


def test_a_peer_that_tries_again_is_warned_about_once(
    run: Run, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that is started over and over does not fill the log of its scheduler."""

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), server.listen(PLAIN) as listener:
            for _ in range(5):
                with pytest.raises(TypeError, match="instead"):
                    await server.connect("tcp://", listener)

    run(main())
    assert len(warnings(caplog)) == 1


def test_tls_at_a_plain_listener_is_an_error_of_tls(
    run: Run, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer that nobody can answer in its language is closed, and the operator reads why."""

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), server.listen(PLAIN) as listener:
            with pytest.raises((OSError, CommClosedError)):
                await server.connect("tls://", listener)

    run(main())
    assert any("as Dask's own tls://, and is refused" in text for text in warnings(caplog))


def test_ours_are_served_beside_those_that_are_refused(run: Run, server: Server) -> None:
    """One wrong address in a cluster disturbs nobody else."""

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), server.listen(PLAIN) as listener:
            comms = []
            for _ in range(10):
                with pytest.raises(TypeError, match="instead"):
                    await server.connect("tcp://", listener)
                comms.append(await connect(listener.contact_address))
            for comm, theirs in zip(comms, server.met, strict=True):
                await comm.write("x")
                assert await theirs.read() == "x"
                comm.abort()
                theirs.abort()

    run(main())


@pytest.mark.parametrize(
    ("first", "answer"),
    [(b"FBAY\1\0\3\0", b"FBAY"), (encoded({"python": (3, 11, 7)}), b"instead")],
    ids=["ours", "stock"],
)
def test_first_bytes_that_come_one_by_one_are_heard_out(
    run: Run, server: Server, first: bytes, answer: bytes
) -> None:
    """A slow network splits a preface anywhere."""

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), server.listen(PLAIN) as listener:
            reader, writer = await asyncio.open_connection(*listener.get_host_port())
            for byte in first:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.002)
            got = b""
            while answer not in got:
                more = await reader.read(1 << 16)
                assert more, got
                got += more
            writer.close()
            await writer.wait_closed()

    run(main())
