"""TLS over real sockets: who is let in, what travels, and what a cut or a stranger gives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from forebay._core import transport_totals
from forebay.errors import BrokenError, ConfigError, ProtocolError
from forebay.transport import AsyncConnection, Tls, connect, listen
from tests.loops import Run
from tests.transport.certificates import Authority, Signed
from tests.transport.loops import echo

TIMEOUT_S = 30.0
ANY = "tls://localhost:0"
SIZES = (0, 1, 1_000, 16_384, 65_536, 100_003, 1_000_000, 10_000_000)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A CA of this test."""
    return Authority(tmp_path / "pki")


@pytest.fixture
def server(authority: Authority) -> Tls:
    """A listener's side, which lets everybody in."""
    return serving(authority.sign("server"))


@pytest.fixture
def client(authority: Authority) -> Tls:
    """A side that believes that listener."""
    return Tls.client(ca=authority.ca)


def serving(signed: Signed, **more: object) -> Tls:
    """A listener's side that shows `signed`."""
    return Tls.server(cert=signed.cert, key=signed.key, **more)  # type: ignore[arg-type]


async def refusal(server: Tls, client: Tls) -> str:
    """What a client gets that is not let in, or lets the listener not in."""
    async with listen(ANY, echo, tls=server) as listener:
        try:
            async with connect(listener.url, tls=client) as connection:
                await connection.send(b"x")
                await connection.recv()
        except BrokenError as error:
            return str(error)
    return "let in"


def test_a_connection_counts_from_its_handshake_on(run: Run, server: Tls) -> None:
    """A flood of peers that begin none is seen nowhere."""

    def open_ones() -> int:
        return int(transport_totals()["connections"]["tls"])

    async def count(wanted: int) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while open_ones() != wanted:  # noqa: ASYNC110 - the event is in the listener
                await asyncio.sleep(0.01)

    async def check() -> None:
        before = open_ones()
        async with listen(ANY, echo, tls=server) as listener:
            port = int(listener.url.rpartition(":")[2])
            silent = [socket.create_connection(("localhost", port)) for _ in range(3)]
            await count(before + 3)
            for one in silent:
                one.close()
            await count(before)

    run(check())


def test_messages_of_any_size_come_back_whole(run: Run, server: Tls, client: Tls) -> None:
    """A message is what was sent, however it was cut into records."""

    async def main() -> None:
        async with (
            listen(ANY, echo, tls=server) as listener,
            connect(listener.url, tls=client) as connection,
        ):
            for size in SIZES:
                sent = [os.urandom(size), b"small", os.urandom(size // 3)]
                _, got = await asyncio.gather(connection.send(sent), connection.recv())
                assert [bytes(frame) for frame in got] == sent, size

    run(main())


def test_many_messages_in_both_directions_at_once(run: Run, server: Tls, client: Tls) -> None:
    """Sending and receiving do not wait for each other, nor for a full socket."""

    async def main() -> None:
        async with (
            listen(ANY, echo, tls=server) as listener,
            connect(listener.url, tls=client) as connection,
        ):
            sent = [os.urandom(400_000) for _ in range(40)]

            async def send() -> None:
                for message in sent:
                    await connection.send(message)

            async def receive() -> None:
                for message in sent:
                    (got,) = await connection.recv()
                    assert bytes(got) == message

            await asyncio.gather(send(), receive())

    run(main())


def test_threads_have_the_same(server: Tls, client: Tls) -> None:
    """The blocking face waits for the handshake, and moves long messages both ways."""
    ready: list[str] = []
    opened, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with listen(ANY, echo, tls=server) as listener:
            ready.append(listener.url)
            opened.set()
            await asyncio.get_running_loop().run_in_executor(None, done.wait, TIMEOUT_S)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert opened.wait(TIMEOUT_S)
        with connect(ready[0], tls=client) as connection:
            for size in (0, 1_000, 300_000):
                sent = os.urandom(size)
                connection.send(sent)
                assert bytes(connection.recv()[0]) == sent
            assert connection.tls is not None
            assert connection.tls.cipher[1] == "TLSv1.3"
    finally:
        done.set()
        thread.join()


def test_a_listener_of_another_ca_is_refused(run: Run, tmp_path: Path, client: Tls) -> None:
    """Who answers must have been named by the CA that the client believes."""
    stranger = serving(Authority(tmp_path / "other", "others").sign("server"))

    async def main() -> None:
        assert "not issued by the CA given here" in await refusal(stranger, client)

    run(main())


def test_a_certificate_for_another_name_is_refused(run: Run, authority: Authority) -> None:
    """A certificate of the same CA for another host is not enough, unless that is said."""
    server = serving(authority.sign("other", "example.org"))

    async def main() -> None:
        words = await refusal(server, Tls.client(ca=authority.ca))
        assert "127.0.0.1" in words
        assert "example.org" in words
        for allowed in (
            Tls.client(ca=authority.ca, check_hostname=False),
            Tls.client(ca=authority.ca, server_name="example.org"),
        ):
            async with (
                listen(ANY, echo, tls=server) as listener,
                connect(listener.url, tls=allowed) as connection,
            ):
                await connection.send(b"x")
                assert await connection.recv() == [b"x"]

    run(main())


def test_an_expired_certificate_is_refused(run: Run, authority: Authority, client: Tls) -> None:
    """A certificate ends on its date."""
    server = serving(authority.sign("old", ended_days_ago=2))

    async def main() -> None:
        assert "expired" in await refusal(server, client)

    run(main())


def test_a_client_without_a_certificate_is_told_so(
    run: Run, authority: Authority, client: Tls
) -> None:
    """Mutual TLS says what is missing, and shows who came where it is not."""
    server = serving(authority.sign("server"), client_ca=authority.ca)
    worker = authority.sign("worker-7", "worker-7.example.org")
    shown: list[object] = []

    async def note(connection: AsyncConnection) -> None:
        assert connection.tls is not None
        shown.append(connection.tls.certificate)
        await echo(connection)

    async def main() -> None:
        assert "wants a client certificate" in await refusal(server, client)
        known = Tls.client(ca=authority.ca, cert=worker.cert, key=worker.key)
        async with (
            listen(ANY, note, tls=server) as listener,
            connect(listener.url, tls=known) as connection,
        ):
            await connection.send(b"x")
            assert await connection.recv() == [b"x"]

    run(main())
    expected = ssl._ssl._test_decode_cert(str(worker.cert))  # type: ignore[attr-defined]
    assert shown == [expected]


def test_what_was_agreed_on_is_told(run: Run, authority: Authority) -> None:
    """The cipher is told as ssl tells it, the protocol by its name."""
    server = serving(authority.sign("server"), alpn=["forebay/1", "other"])
    client = Tls.client(ca=authority.ca, alpn=["forebay/1"])

    async def main() -> None:
        async with (
            listen(ANY, echo, tls=server) as listener,
            connect(listener.url, tls=client) as connection,
        ):
            found = connection.tls
            assert found is not None
            name, version, bits = found.cipher
            assert "AES" in name
            assert (version, found.version, found.alpn) == ("TLSv1.3", "TLSv1.3", "forebay/1")
            assert bits in (128, 256)
            assert found.certificate["subjectAltName"][0] == ("DNS", "localhost")
            assert ssl.DER_cert_to_PEM_cert(found.chain[0])

    run(main())


def test_later_connections_resume_the_first(run: Run, server: Tls, client: Tls) -> None:
    """A reconnect costs no second full handshake."""

    async def main() -> None:
        async with listen(ANY, echo, tls=server) as listener:
            for _ in range(3):
                async with connect(listener.url, tls=client) as connection:
                    await connection.send(b"x")
                    await connection.recv()

    run(main())
    assert client.handshakes == {"full": 1, "resumed": 2, "failed": 0}
    assert server.handshakes == client.handshakes


def test_new_certificates_are_used_without_a_restart(
    run: Run, authority: Authority, server: Tls, client: Tls
) -> None:
    """A renewed certificate is shown to the next peer; one that does not fit is not."""

    async def main() -> None:
        async with listen(ANY, echo, tls=server) as listener:

            async def shown() -> bytes:
                async with connect(listener.url, tls=client) as connection:
                    assert connection.tls is not None
                    return connection.tls.chain[0]

            first = await shown()
            renewed = authority.sign("server")
            second = await shown()
            assert second != first
            renewed.key.write_text("nothing")
            assert await shown() == second
            assert server.failure is not None
            with pytest.raises(ConfigError, match=r"server\.key: no private key"):
                server.reload()

    run(main())


def test_tls_to_a_plain_port_and_plain_to_a_tls_port_are_named(
    run: Run, server: Tls, client: Tls
) -> None:
    """A wrong scheme says so on the first answer, and hangs nowhere."""

    async def main() -> None:
        async with listen("tcp://localhost:0", echo) as plain:
            with pytest.raises(
                (BrokenError, ProtocolError), match=r"does not speak TLS|closed|reset"
            ):
                await connect(plain.url.replace("tcp:", "tls:"), tls=client)
        async with listen(ANY, echo, tls=server) as sealed:
            with pytest.raises((BrokenError, ProtocolError)):
                await connect(sealed.url.replace("tls:", "tcp:"))

    run(main())


def python_peer(url: str, authority: Authority) -> ssl.SSLSocket:
    """A client of OpenSSL, by Python's ssl."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    host, port = url.removeprefix("tls://").rsplit(":", 1)
    del host
    return context.wrap_socket(
        socket.create_connection(("localhost", int(port)), TIMEOUT_S), server_hostname="localhost"
    )


def test_a_stream_cut_without_close_notify_is_an_error(
    run: Run, authority: Authority, server: Tls
) -> None:
    """Who cuts the connection cannot make half of what was said look like all of it."""
    ends: list[BaseException] = []
    preface = plain_preface()

    async def main() -> None:
        begun, ended = threading.Event(), asyncio.Event()

        async def handle(connection: AsyncConnection) -> None:
            begun.set()
            try:
                await connection.recv()
            except BrokenError as error:
                ends.append(error)
            ended.set()

        def cut(url: str, *, politely: bool) -> None:
            with python_peer(url, authority) as peer:
                peer.sendall(preface)
                peer.recv(32)
                # What is cut before that is handed to nobody.
                assert begun.wait(20)
                if politely:
                    with contextlib.suppress(OSError):
                        peer.unwrap()

        async with listen(ANY, handle, tls=server) as listener:
            for politely in (False, True):
                begun.clear()
                ended.clear()
                await asyncio.to_thread(cut, listener.url, politely=politely)
                await ended.wait()

    run(main())
    assert "without a TLS close_notify" in str(ends[0])
    assert "close_notify" not in str(ends[1])


def plain_preface() -> bytes:
    """What a connection says first, taken from one."""

    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            from forebay._core import MessageConnection

            core = MessageConnection(ours.detach(), peer="nobody")
            try:
                return theirs.recv(32)
            finally:
                core.close()

    return asyncio.run(main())


def test_a_tls_argument_has_to_fit_the_url(server: Tls, client: Tls, authority: Authority) -> None:
    """A program never speaks in the clear by mistake, nor shows the wrong side."""
    with pytest.raises(ConfigError, match=r"needs tls=Tls\.client"):
        connect("tls://localhost:1")
    with pytest.raises(ConfigError, match="not encrypted"):
        connect("tcp://localhost:1", tls=client)
    with pytest.raises(ConfigError, match="for the other side"):
        listen(ANY, echo, tls=client)
    with pytest.raises(ConfigError, match="client_ca="):
        listen("tls://0.0.0.0:0", echo, tls=server)
    signed = authority.sign("server")
    listen("tls://0.0.0.0:0", echo, tls=serving(signed, client_ca=authority.ca))
    with pytest.raises(ConfigError, match=r"absent\.pem"):
        Tls.client(ca=authority.folder / "absent.pem")
    with pytest.raises(ConfigError, match="min_version"):
        Tls.client(ca=authority.ca, min_version="1.1")  # type: ignore[arg-type]
