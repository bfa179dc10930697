"""Who may call over a network, and what becomes of those who may not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import resource
import socket
import struct
from pathlib import Path

import pytest

from forebay import rpc
from forebay._core import Connection
from forebay.errors import BrokenError, ConfigError, DeadlineError, ProtocolError
from forebay.transport import Tls
from tests.transport.certificates import Authority
from tests.transport.message_bytes import header, resident_bytes, token

from .conftest import Run
from .handlers import Handler, Place, place, until

__all__ = ["place"]

CALL, PICKLE = 1, 1
LOOPBACK = "tcp://127.0.0.1:0"


def preface(role: int = 1, *, frame_bytes_max: int = 1 << 30) -> bytes:
    """What a caller says first."""
    version = struct.pack("<HBBQQHHI", 1, role, 0, 0, frame_bytes_max, 1024, 0, 0)
    return b"FBAY" + version


def call(head: bytes, *, codec: int = 0, number: int = 1) -> bytes:
    """A call as bytes."""
    return struct.pack("<IBBHQII", len(head), CALL, codec, 0, number, 0xFFFFFFFF, 0) + head


def dialled(url: str) -> socket.socket:
    """A peer that is written by hand."""
    host, port = url.rpartition("//")[2].rsplit(":", 1)
    return socket.create_connection((host, int(port)), 20)


def read_all(peer: socket.socket) -> bytes:
    """What comes until the server hangs up."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while part := peer.recv(1 << 16):
            got += part
    return got


def test_a_token_lets_in_and_another_does_not(run: Run, place: Place) -> None:
    """Whoever does not know the token learns so when connecting, and calls nothing."""
    handler = Handler()

    async def work() -> None:
        async with place.serve(handler, token="secret") as server:
            channel = await place.connect(server.url, token="secret")
            assert await channel.call("echo", (b"x" * 100_000,)) == b"x" * 100_000
            await channel.aclose()
            for wrong in (None, "guess", "secret "):
                # Without one a caller waits for the word that it has come to the right place.
                with pytest.raises((BrokenError, DeadlineError)) as caught:
                    await refused_or_called(place, server.url, wrong)
                assert server.url in str(caught.value)
            assert await asyncio.to_thread(blocking, place, server.url) == [1]

    run(work())
    assert handler.seen == []


async def refused_or_called(place: Place, url: str, shown: str | None) -> None:
    """Connect and call; over a Unix socket without a token nothing is awaited before the call."""
    channel = await place.connect(url, token=shown, timeout=0.3)
    try:
        await channel.call("note", ("in",), timeout=0.3)
    finally:
        await channel.aclose()


def blocking(place: Place, url: str) -> list[int]:
    """The same for threads."""
    with pytest.raises(BrokenError):
        place.connect(url, token="guess").open()
    with place.connect(url, token="secret") as channel:
        return [channel.call("echo", (1,))]


@pytest.mark.parametrize(
    ("shown", "advice"),
    [
        (None, r"if it asks for a token, give the same one by token="),
        ("guess", r"the one given by token= may not be the one that it asks for"),
    ],
)
def test_who_is_not_let_in_reads_of_the_token(
    run: Run, place: Place, shown: str | None, advice: str
) -> None:
    """A closed connection alone would send its reader looking at the network."""
    refused = (BrokenError, DeadlineError)  # who shows none is waited for

    def call(url: str) -> None:
        with (
            rpc.Client(url, token=shown, timeout=0.3, **place.calling) as client,
            pytest.raises(refused, match=advice),
        ):
            client.call("echo", (1,))

    async def work() -> None:
        async with place.serve(Handler(), token="secret") as server:
            await asyncio.to_thread(call, server.url)
            client = rpc.AsyncClient(server.url, token=shown, timeout=0.3, **place.calling)
            async with client:
                with pytest.raises(refused, match=advice):
                    await client.call("echo", (1,))

    run(work())


def test_a_caller_without_a_token_is_told_how(run: Run) -> None:
    """Nothing is run before the token, and a late one does not help."""
    handler = Handler()

    async def work() -> None:
        async with rpc.serve(handler, LOOPBACK, token="secret") as server:
            for first in (call(b"\x93\xa4note\x91\x01\xc0"), header(5)):
                with dialled(server.url) as peer:
                    peer.sendall(preface() + first + token(b"secret"))
                    assert await asyncio.to_thread(read_all, peer) == b""

    run(work())
    assert handler.seen == []


def test_a_caller_of_no_answers_is_let_go_and_others_are_served(run: Run) -> None:
    """Where an answer fits no frame that its caller takes, nobody else loses anything."""
    handler = Handler()

    async def work() -> None:
        async with rpc.serve(handler, LOOPBACK, max_calls=1) as server:
            channel = await rpc.connect(server.url)
            waiting = asyncio.create_task(channel.call("wait"))
            await until(lambda: handler.seen)
            with dialled(server.url) as peer:
                peer.sendall(preface(frame_bytes_max=0) + call(b"\x93\xa4echo\x91\x01\xc0"))
                queued = asyncio.create_task(channel.call("echo", (1,)))
                read = asyncio.create_task(asyncio.to_thread(read_all, peer))
                assert handler.gate is not None
                handler.gate.set()
                assert await waiting == "waited"
                assert await queued == 1
                await read
            assert await channel.call("echo", (2,)) == 2
            await until(lambda: server.connections == 1)
            await channel.aclose()

    run(work())


def test_a_session_that_fails_keeps_no_call_of_another_waiting(run: Run) -> None:
    """When a call has ended, every caller has its turn, and one that fails is closed."""
    handler = Handler()

    async def work() -> None:
        async with rpc.serve(handler, LOOPBACK, max_calls=1) as server:
            channels = [await rpc.connect(server.url) for _ in range(2)]
            waiting = asyncio.create_task(channels[0].call("wait"))
            await until(lambda: handler.seen)
            queued = asyncio.create_task(channels[0].call("echo", (1,)))
            (failing,) = (one for one in server._sessions if not one._tasks)

            def fail() -> None:
                raise ValueError("planned")

            failing.take_calls = fail  # type: ignore[method-assign]
            assert handler.gate is not None
            handler.gate.set()
            assert await waiting == "waited"
            assert await queued == 1
            assert failing._connection.closed
            for channel in channels:
                await channel.aclose()

    run(work())


def test_a_stranger_that_stops_within_a_frame_is_let_go(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a frame does not hold a connection for ever; between two frames one may idle."""
    monkeypatch.setattr("forebay.rpc._server.STRANGER_TIMEOUT_S", 0.2)
    echo = call(b"\x93\xa4echo\x91\x01\xc0")

    async def work() -> None:
        async with rpc.serve(Handler(), "tcp://0.0.0.0:0", unprotected=True) as server:
            url = server.url.replace("0.0.0.0", "127.0.0.1")
            with dialled(url) as idle, dialled(url) as half:
                idle.sendall(preface() + echo)
                half.sendall(preface() + echo + echo[:-1])
                answer = await asyncio.to_thread(read_all, half)
                assert len(answer) > 32, "the whole call was answered"
                await until(lambda: server.connections == 1)
                assert len(await asyncio.to_thread(idle.recv, 1 << 16)) > 32
                idle.sendall(echo)
                assert await asyncio.to_thread(idle.recv, 1 << 16)

    run(work())


def test_an_exception_of_any_length_is_told(run: Run) -> None:
    """Its text is cut to what the caller's frames can hold, not lost with the connection."""

    class Talking:
        def plain(self) -> None:
            raise KeyError("x" * 100_000)

        async def later(self) -> None:
            raise KeyError("x" * 100_000)

    async def work() -> None:
        async with rpc.serve(Talking(), LOOPBACK) as server:
            for name in (b"\xa5plain", b"\xa5later"):
                with dialled(server.url) as peer:
                    head = b"\x93" + name + b"\x90\xc0"
                    peer.sendall(preface(frame_bytes_max=1 << 16) + call(head))
                    peer.settimeout(20)
                    answer = await asyncio.to_thread(read_until, peer, b"cut: ")
                    assert b"KeyError" in answer
                    assert len(answer) < 1 << 16

    run(work())


def read_until(peer: socket.socket, mark: bytes) -> bytes:
    """What comes up to a mark, or to the end."""
    got = b""
    while mark not in got and (part := peer.recv(1 << 16)):
        got += part
    assert mark in got
    return got


@pytest.mark.parametrize("kind", [CALL, 10])
def test_an_uninvited_peer_gets_64_kib_of_memory(run: Run, kind: int) -> None:
    """What a peer announces before it is let in is refused above a small limit."""

    async def work() -> None:
        async with rpc.serve(Handler(), LOOPBACK, token="secret") as server:
            before = resident_bytes()
            with dialled(server.url) as peer:
                peer.sendall(preface() + header(kind, head=(64 << 10) + 1))
                assert await asyncio.to_thread(read_all, peer) == b""
            assert resident_bytes() - before < 4 << 20

    run(work())


def test_a_silent_peer_and_a_slow_one_are_dropped(
    run: Run, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Who does not say who it is in time does not hold a place."""

    async def work() -> None:
        async with place.serve(Handler(), handshake_timeout=0.2) as server:
            if place.scheme == "unix":
                silent = socket.socket(socket.AF_UNIX)
                silent.connect(server.url.removeprefix("unix://"))
            else:
                silent = dialled(server.url)
            with silent:
                await until(lambda: server.connections == 1)
                silent.send(b"\x16\x03\x01" if place.scheme == "tls" else preface()[:7])
                await until(lambda: server.connections == 0)
            channel = await place.connect(server.url)
            assert await channel.call("echo", (1,)) == 1
            await channel.aclose()

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "did not finish its handshake within 0.2 s" in caplog.text


def test_a_server_that_never_answers_is_given_up(run: Run) -> None:
    """Connecting ends in its time, in a thread and on a loop, and names the URL."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"tcp://127.0.0.1:{mute.getsockname()[1]}"

        async def work() -> None:
            with pytest.raises(DeadlineError, match=url):
                await rpc.connect(url, timeout=0.1)

        run(work())
        with pytest.raises(DeadlineError, match=url) as caught:
            rpc.connect(url, timeout=0.1).open()
        assert caught.value.timeout == 0.1


def test_garbage_and_other_protocols_are_refused(run: Run, place: Place) -> None:
    """A stranger is hung up on, and the server goes on."""
    if place.scheme == "unix":
        pytest.skip("strangers come over networks")

    async def work() -> None:
        async with place.serve(Handler()) as server:
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, preface(role=3), preface(9)):
                with dialled(server.url) as peer:
                    peer.sendall(garbage)
                    answer = await asyncio.to_thread(read_all, peer)
                    assert place.scheme == "tls" or len(answer) <= 32  # no more than a preface
            channel = await place.connect(server.url)
            assert await channel.call("echo", (1,)) == 1
            await channel.aclose()

    run(work())


def test_tls_to_a_plain_port_and_plain_to_a_tls_port_are_named(run: Run, tmp_path: Path) -> None:
    """A wrong scheme says so at once, and hangs nowhere."""
    sealed = Place("tls", tmp_path)

    async def work() -> None:
        async with rpc.serve(Handler(), "tcp://localhost:0") as plain:
            with pytest.raises((BrokenError, ProtocolError), match="localhost"):
                await sealed.connect(
                    plain.url.replace("tcp:", "tls:").replace("127.0.0.1", "localhost")
                )
        async with sealed.serve(Handler()) as server:
            with pytest.raises((BrokenError, ProtocolError), match="tcp://"):
                await rpc.connect(server.url.replace("tls:", "tcp:"))

    run(work())


def test_certificates_are_checked_on_both_sides(run: Run, tmp_path: Path) -> None:
    """A server of another CA is refused, and a caller without a certificate where one is asked."""
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others", "others")
    signed, worker = ours.sign("server"), ours.sign("worker")
    believing = Tls.client(ca=ours.ca)
    known = Tls.client(ca=ours.ca, cert=worker.cert, key=worker.key)
    mutual = Tls.server(cert=signed.cert, key=signed.key, client_ca=ours.ca)

    async def work() -> None:
        async with rpc.serve(Handler(), "tls://localhost:0", tls=mutual) as server:
            with pytest.raises(BrokenError, match="not issued by the CA"):
                await rpc.connect(server.url, tls=Tls.client(ca=others.ca))
            with pytest.raises(BrokenError):
                await rpc.connect(server.url, tls=believing)
            channel = await rpc.connect(server.url, tls=known)
            assert await channel.call("echo", (1,)) == 1
            await channel.aclose()

    run(work())


def test_pickle_is_refused_beyond_one_user(run: Run, place: Place) -> None:
    """Unpickling runs code, so neither end does it for whom the kernel does not vouch for."""
    if place.scheme == "unix":
        pytest.skip("there the kernel says who the peer is")

    async def work() -> None:
        async with place.serve(Handler()) as server:
            with pytest.raises(ConfigError, match="codec='pickle'"):
                await place.connect(server.url, codec="pickle")
            with pytest.raises(ConfigError, match="codec='pickle'"):
                place.connect(server.url, codec="pickle")
            channel = await place.connect(server.url)
            connection, evil = channel.channel._connection, pickle.dumps(("note", (1,), None))
            connection.start(PICKLE, evil, None, None, 0)
            await until(lambda: connection.receive(0))
            await until(lambda: server.connections == 0)
            await channel.aclose()

    run(work())


def test_a_caller_refuses_answers_in_pickle(run: Run) -> None:
    """A server beyond this user cannot make its callers unpickle."""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    head = pickle.dumps("evil")
    reply = struct.pack("<IBBHQII", len(head), 2, PICKLE, 0, 1, 0, 0) + head

    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            peer.sendall(preface(role=2))
            got = b""
            while len(got) <= len(preface()):  # until the call comes behind it
                got += peer.recv(1 << 16)
            peer.sendall(reply)
            read_all(peer)

    async def work() -> None:
        serving = asyncio.create_task(asyncio.to_thread(serve))
        channel = await rpc.connect(url)
        with pytest.raises(ProtocolError, match="pickle is refused"):
            await channel.call("echo", (1,))
        await channel.aclose()
        await serving

    with listening:
        run(work())


def test_other_machines_need_a_token_or_a_word(tmp_path: Path) -> None:
    """A server is not open to a network by mistake, nor does a token travel nowhere."""
    with pytest.raises(ConfigError, match="token="):
        rpc.serve(Handler(), "tcp://0.0.0.0:0")
    rpc.serve(Handler(), "tcp://0.0.0.0:0", token="t")
    rpc.serve(Handler(), "tcp://0.0.0.0:0", unprotected=True)
    for wrong in ("", "x" * 5000):
        with pytest.raises(ConfigError, match="token="):
            rpc.serve(Handler(), LOOPBACK, token=wrong)
        with pytest.raises(ConfigError, match="token="):
            rpc.connect(LOOPBACK, token=wrong)
    with pytest.raises(ConfigError, match=r"needs tls=Tls\.client"):
        rpc.connect("tls://localhost:1")
    with pytest.raises(ConfigError, match="not encrypted"):
        rpc.connect(LOOPBACK, tls=Tls.client(ca=Authority(tmp_path).ca))
    with pytest.raises(BrokenError, match="is a server listening there") as caught:
        rpc.connect("tcp://127.0.0.1:1").open()
    assert caught.value.delivered == "no"


def test_without_descriptors_the_first_caller_is_turned_away(
    run: Run, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A caller is told at once rather than left to wait, and later ones are let in."""

    async def work() -> None:
        async with place.serve(Handler()) as server:
            first = await place.connect(server.url)
            assert await first.call("echo", (1,)) == 1
            peer = socket.socket(socket.AF_UNIX if place.scheme == "unix" else socket.AF_INET)
            peer.settimeout(10)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (peer.fileno() + 1, hard))
            try:
                if place.scheme == "unix":
                    peer.connect(server.url.removeprefix("unix://"))
                else:
                    host, port = server.url.rpartition("//")[2].rsplit(":", 1)
                    peer.connect((host, int(port)))
                assert await asyncio.to_thread(read_all, peer) in (b"", b"FBAY")
                assert await first.call("echo", (2,)) == 2
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                peer.close()
            later = await place.connect(server.url)
            assert await later.call("echo", (3,)) == 3
            await first.aclose()
            await later.aclose()

    with caplog.at_level(logging.ERROR):
        run(work())
    assert "accepts no connection" in caplog.text


def test_connections_in_their_handshake_are_bounded(run: Run) -> None:
    """A crowd that says nothing waits in the kernel's queue beyond 256, and goes with time."""

    async def work() -> None:
        async with rpc.serve(Handler(), LOOPBACK, handshake_timeout=2.0) as server:
            with contextlib.ExitStack() as crowd:
                for _ in range(300):
                    crowd.enter_context(dialled(server.url))
                await until(lambda: server.connections >= 256)
                for _ in range(10):
                    await asyncio.sleep(0)
                    assert server.connections <= 256
                channel = await rpc.connect(server.url)
                assert await channel.call("echo", (1,)) == 1
                await channel.aclose()

    run(work())


def test_the_token_travels_after_the_preface_alone(tmp_path: Path) -> None:
    """A connection says its token once, behind its preface."""
    ours, theirs = socket.socketpair()
    with theirs:
        connection = Connection(ours.detach(), peer="nobody", token=b"secret")
        said = theirs.recv(1 << 16)
        connection.close()
    assert said[32:] == token(b"secret")


def test_a_full_queue_of_a_unix_socket_holds_nobody_up(run: Run, tmp_path: Path) -> None:
    """A server that accepts nobody is given up in time, and the loop goes on meanwhile."""
    url = f"unix://{tmp_path}/s"
    with contextlib.ExitStack() as queue:
        listening = queue.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(tmp_path / "s"))
        listening.listen(0)
        first = queue.enter_context(socket.socket(socket.AF_UNIX))
        first.connect(str(tmp_path / "s"))

        async def work() -> None:
            connecting = asyncio.ensure_future(rpc.connect(url, timeout=1.0))
            turns = 0
            while not connecting.done():
                await asyncio.sleep(0.005)
                turns += 1
            assert turns > 10
            with pytest.raises(DeadlineError, match=url):
                await connecting
            later = asyncio.ensure_future(rpc.connect(url, timeout=10))
            await asyncio.sleep(0)
            accepted = [queue.enter_context(listening.accept()[0])]
            await (await later).aclose()
            accepted.append(queue.enter_context(listening.accept()[0]))
            queue.enter_context(socket.socket(socket.AF_UNIX)).connect(str(tmp_path / "s"))

        run(work())
        with pytest.raises(DeadlineError, match=url) as caught:
            rpc.connect(url, timeout=0.1).open()
        assert caught.value.timeout == 0.1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")
@pytest.mark.parametrize("what", ["directory", "lock"])
def test_a_socket_among_another_users_files_is_refused(tmp_path: Path, what: str) -> None:
    """The owner of its directory could replace it, and the owner of its lock keep it from us."""
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    if what == "directory":
        os.chown(folder, 65534, 65534)
    else:
        folder.chmod(0o1777)
        (folder / "s.lock").touch()
        os.chown(folder / "s.lock", 65534, 65534)

    async def work() -> None:
        async with rpc.serve(Handler(), f"unix://{folder}/s"):
            pass

    with pytest.raises(ConfigError, match=r"belongs to user 65534.*this is user 0.*of your own"):
        asyncio.run(work())
