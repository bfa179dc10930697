"""TLS against peers that are strange, slow, or OpenSSL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay._core import MessageConnection
from forebay.errors import BrokenError, ProtocolError
from forebay.transport import AsyncConnection, AsyncListener, Tls, connect, listen
from tests.transport.certificates import Authority
from tests.transport.loops import echo

TIMEOUT_S = 15.0
ANY = "tls://127.0.0.1:0"
PREFACE_BYTES = 32
HIGH_MARK = 512 << 10


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA of this test."""
    return Authority(tmp_path / "pki")


@pytest.fixture
def server(authority: Authority) -> Tls:
    """A listener's side, which lets everybody in."""
    signed = authority.sign("server")
    return Tls.server(cert=signed.cert, key=signed.key, min_version="1.2")


@pytest.fixture
def preface() -> Iterator[bytes]:
    """What a connection says first, taken from one."""
    ours, theirs = socket.socketpair()
    core = MessageConnection(ours.detach(), peer="nobody")
    with theirs:
        yield theirs.recv(PREFACE_BYTES)
    core.close()


def address(listener: AsyncListener) -> tuple[str, int]:
    """Where a plain socket reaches it."""
    host, port = listener.url.removeprefix("tls://").rsplit(":", 1)
    return host, int(port)


def dial(listener: AsyncListener, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Connect as OpenSSL does."""
    plain = socket.create_connection(address(listener), TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname="localhost")


def message(frame: bytes) -> bytes:
    """One message of one frame, as it lies on the wire."""
    header = (0).to_bytes(4, "little") + bytes([8, 0]) + (1).to_bytes(2, "little")
    return header + bytes(16) + body(frame)


def body(frame: bytes) -> bytes:
    """What follows the header."""
    return len(frame).to_bytes(8, "little") + frame


def exactly(peer: ssl.SSLSocket, count: int) -> bytes:
    """So many bytes of a stream."""
    found = b""
    while len(found) < count:
        some = peer.recv(count - len(found))
        assert some, "the stream ended"
        found += some
    return found


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_openssl_speaks_both_versions(
    authority: Authority, server: Tls, preface: bytes, version: ssl.TLSVersion
) -> None:
    """Another implementation gets its message back, cut into its own records."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    context.minimum_version = context.maximum_version = version
    sent = os.urandom(300_000)

    def talk(listener: AsyncListener) -> bytes:
        with dial(listener, context) as peer:
            whole = preface + message(sent)
            for at in range(0, len(whole), 7_001):
                peer.sendall(whole[at : at + 7_001])
            back = exactly(peer, len(whole))
            with contextlib.suppress(OSError):
                peer.unwrap()
            return back[-len(sent) :]

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), listen(ANY, echo, tls=server) as listener:
            assert await asyncio.to_thread(talk, listener) == sent

    asyncio.run(main())


@pytest.mark.needs("openssl")
def test_a_key_update_of_the_peer_goes_unnoticed(
    authority: Authority, server: Tls, preface: bytes
) -> None:
    """Keys that change in mid-stream lose no byte, and are answered where that is asked for."""
    got: list[bytes] = []

    async def main() -> None:
        done = asyncio.Event()

        async def take(connection: AsyncConnection) -> None:
            await connection.send(b"welcome")
            async for (frame,) in connection:
                got.append(bytes(frame))
                await connection.send(frame)
            done.set()

        async with asyncio.timeout(TIMEOUT_S), listen(ANY, take, tls=server) as listener:
            host, port = address(listener)
            program = await asyncio.create_subprocess_exec(
                *("openssl", "s_client", "-connect", f"{host}:{port}", "-servername", "localhost"),
                *("-CAfile", str(authority.ca), "-tls1_3"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert program.stdin is not None
            assert program.stdout is not None
            said = b""
            turns = (
                (preface + message(b"a"), body(b"a"), 1),
                (b"K\n", b"KEYUPDATE", 1),
                (message(b"b"), body(b"b"), 1),
                (b"k\n", b"KEYUPDATE", 2),
                (message(b"c"), body(b"c"), 1),
            )
            for words, answer, times in turns:
                # One write is one read of s_client, which looks for its commands at its start.
                program.stdin.write(words)
                while said.count(answer) < times:
                    some = await program.stdout.read(4096)
                    assert some, said
                    said += some
            program.stdin.close()
            await program.wait()
            await done.wait()

    asyncio.run(main())
    assert got == [b"a", b"b", b"c"]


def test_garbage_ends_its_connection_alone(authority: Authority, server: Tls) -> None:
    """Noise of any kind is refused with an alert or an end, and the next peer is served."""
    noise = random.Random(7)
    client = Tls.client(ca=authority.ca)

    def shout(listener: AsyncListener) -> None:
        for round_ in range(60):
            with socket.create_connection(address(listener), TIMEOUT_S) as peer:
                start = (b"", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/1.1\r\n", b"\x80\x2e")
                with contextlib.suppress(OSError):
                    peer.sendall(start[round_ % 4] + noise.randbytes(noise.randrange(1, 3_000)))
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(4096):
                        pass

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), listen(ANY, echo, tls=server) as listener:
            await asyncio.to_thread(shout, listener)
            async with connect(listener.url, tls=client) as connection:
                await connection.send(b"x")
                assert await connection.recv() == [b"x"]

    asyncio.run(main())
    assert server.handshakes["failed"] == 60
    assert server.handshakes["full"] == 1


def test_a_handshake_that_stands_still_is_given_up(server: Tls) -> None:
    """Half a handshake holds a place for its deadline and no longer."""

    async def main() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            listen(ANY, echo, tls=server, handshake_timeout=0.2) as listener,
        ):
            reader, writer = await asyncio.open_connection(*address(listener))
            writer.write(b"\x16\x03\x01")
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

    asyncio.run(main())


def test_a_peer_that_never_reads_stops_the_sender(authority: Authority, server: Tls) -> None:
    """Sealed bytes count: memory does not grow behind the high mark's back."""
    client = Tls.client(ca=authority.ca)

    async def main() -> None:
        release = asyncio.Event()

        async def ignore(connection: AsyncConnection) -> None:
            await release.wait()

        async with asyncio.timeout(TIMEOUT_S), listen(ANY, ignore, tls=server) as listener:
            connection = await connect(listener.url, tls=client)
            sent = 0
            with contextlib.suppress(TimeoutError):
                while sent < 2_000:
                    async with asyncio.timeout(0.5):
                        await connection.send(bytes(60_000))
                    sent += 1
            assert sent < 2_000, "nobody held the sender back"
            assert connection.metrics()["outbox_bytes"] <= HIGH_MARK + 2 * 60_100
            connection.abort()
            release.set()

    asyncio.run(main())


@pytest.mark.parametrize("cut", [1, 40, 150, 500])
def test_a_listener_that_vanishes_in_the_handshake_is_an_error(
    authority: Authority, server: Tls, cut: int
) -> None:
    """Whoever connects gets an error, not a wait, wherever the stream is cut."""
    client = Tls.client(ca=authority.ca)

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), listen(ANY, echo, tls=server) as listener:

            async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                """Pass a client's words on, and `cut` bytes of the answer."""
                there, back = await asyncio.open_connection(*address(listener))
                back.write(await reader.read(65_536))
                left = cut
                while left and (some := await there.read(left)):
                    writer.write(some)
                    left -= len(some)
                for one in (back, writer):
                    one.close()
                    with contextlib.suppress(OSError):
                        await one.wait_closed()

            middle = await asyncio.start_server(relay, "127.0.0.1", 0)
            async with middle:
                port = middle.sockets[0].getsockname()[1]
                with pytest.raises((BrokenError, ProtocolError)):
                    await connect(f"tls://127.0.0.1:{port}", tls=client)

    asyncio.run(main())
