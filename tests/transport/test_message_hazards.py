"""What goes wrong between two ends of a connection, and what a user gets then.

Each test is one hazard of plain sockets; those of cancelled receives, two readers, a peer that
never reads and a close are in `test_messages`, a failure at each byte in
`tests/testing/test_memory.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from forebay._core import MessageConnection
from forebay.errors import BrokenError, BusyError, ClosedError, Error
from forebay.testing import Wire, chaos, connection_pair
from forebay.transport import AsyncConnection, Connection, connect, listen
from tests.loops import Run
from tests.pool.processes import open_files_limited
from tests.transport.loops import echo, until
from tests.transport.message_bytes import message, preface, resident_bytes

BIG = 10_000_000


@contextlib.asynccontextmanager
async def narrow_pair() -> AsyncIterator[tuple[AsyncConnection, AsyncConnection]]:
    """Two ends whose sockets hold next to nothing, so that every write is a partial one."""
    sockets = socket.socketpair()
    cores = []
    for own in sockets:
        own.setblocking(False)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        cores.append(MessageConnection(own.detach(), peer="the tester", trusted=True))
    try:
        for core in cores:
            core.bind(asyncio.get_running_loop())
        for core in cores:
            await core.handshake()
        yield AsyncConnection(cores[0], "test"), AsyncConnection(cores[1], "test")
    finally:
        for core in cores:
            core.close()


def test_partial_writes_arrive_whole_and_in_order(run: Run) -> None:
    """A socket that takes a few hundred bytes at a time changes nothing but the time."""
    source = random.Random(3)
    sent = [
        [source.randbytes(source.choice([0, 1, 700, 70_000])) for _ in range(source.randint(1, 5))]
        for _ in range(40)
    ]

    async def main() -> None:
        async with narrow_pair() as (one, other):

            async def send() -> None:
                for frames in sent:
                    await one.send(frames)

            sending = asyncio.create_task(send())
            got = [[bytes(frame) for frame in await other.recv()] for _ in sent]
            await sending
            assert got == sent

    run(main())


def test_a_send_cancelled_in_mid_message_never_mixes_with_the_next(run: Run) -> None:
    """The receiver sees the cancelled message whole, and then the next one."""

    async def main() -> None:
        async with narrow_pair() as (one, other):
            for byte in range(10):
                content = bytearray([byte]) * 200_000
                sending = asyncio.create_task(one.send([b"first", content]))
                await asyncio.sleep(0)
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                content[:] = b"\xff" * len(content)
                await one.send([b"second"])
                first, second = await other.recv(), await other.recv()
                assert bytes(first[1]) == bytes([byte]) * 200_000
                assert second == [b"second"]

    run(main())


def test_a_recv_cancelled_in_the_turn_of_the_arrival_leaves_the_message(run: Run) -> None:
    """The waiter was woken already when it was cancelled; the message is the next one's."""

    async def main() -> None:
        async with connection_pair() as (one, other):
            receiving = asyncio.create_task(other.recv())
            await asyncio.sleep(0)
            await one.send(b"kept")
            other._core.on_readable()  # the arrival, in this very turn
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            assert await other.recv() == [b"kept"]

    run(main())


@pytest.mark.parametrize("size", [100, 65_536, 65_537, BIG])
def test_a_buffer_may_be_changed_once_send_has_returned(run: Run, size: int) -> None:
    """What arrives is what was there when it was sent."""

    async def main() -> None:
        async with connection_pair(there=Wire(piece_bytes=1 << 20)) as (one, other):
            content = bytearray(b"a" * size)
            receiving = asyncio.create_task(other.recv())
            await one.send(content)
            content[:] = b"b" * size
            (frame,) = await receiving
            assert bytes(frame) == b"a" * size

    run(main())


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_a_connect_that_finds_no_descriptor_at_its_end_is_closed(run: Run, face: str) -> None:
    """The peer is not left with a connection that nobody has."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            connecting = connect("tcp://{}:{}".format(*server.getsockname()))
            opening = asyncio.ensure_future(
                asyncio.to_thread(connecting.__enter__)
                if face == "blocking"
                else connecting.__aenter__()
            )
            raw, _ = await asyncio.to_thread(server.accept)
            with raw:
                raw.settimeout(10)
                assert await asyncio.to_thread(raw.recv, len(preface())) == preface()
                with open_files_limited(0):
                    raw.sendall(preface())
                    with pytest.raises((OSError, Error)):
                        await opening
                assert await asyncio.to_thread(read_all, raw) == b""

    run(main())


def test_a_half_closed_peer_gets_its_answers(run: Run, url: str) -> None:
    """The end of the requests is not the end of the peer."""

    async def main() -> None:
        async with listen(url, echo) as listener:
            raw = dialled(listener.url)
            with raw:
                raw.sendall(preface() + message(b"one") + message(b"two", b"three"))
                raw.shutdown(socket.SHUT_WR)
                got = await asyncio.to_thread(read_all, raw)
            assert got == preface() + message(b"one") + message(b"two", b"three")

    run(main())


def test_a_reset_is_told_to_sender_and_receiver(run: Run) -> None:
    """No success is reported for what the peer may never have seen."""

    async def main() -> None:
        async with connection_pair(there=Wire(reset_at=1_000_000)) as (one, other):
            receiving = asyncio.create_task(one.recv())
            with pytest.raises(BrokenError) as sent:
                await one.send(bytes(BIG))
            assert sent.value.delivered == "maybe"
            with pytest.raises(BrokenError):
                await receiving
            with pytest.raises(BrokenError):
                await other.recv()
            with pytest.raises(BrokenError) as later:
                await one.send(b"x")
            assert later.value.delivered == "no"
            assert one.closed
            assert other.closed

    run(main())


def test_a_reset_before_its_addresses_are_known_is_told_as_such() -> None:
    """A peer that leaves right after its handshake is no error of the system's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    core = MessageConnection(ours.detach(), peer="the tester")
    with pytest.raises(BrokenError, match="the tester"):
        Connection(core, "tcp")
    core.close()


def test_an_own_side_that_never_reads_keeps_memory_bounded(run: Run) -> None:
    """200 MB are offered; the inbox limit is what becomes resident."""

    async def main() -> None:
        async with connection_pair() as (one, other):
            before = resident_bytes()
            content = bytes(100_000)

            async def offer() -> None:
                for _ in range(2_000):
                    await one.send(content)

            offering = asyncio.create_task(offer())
            await until(lambda: other.metrics()["inbox_bytes"] >= 4 << 20)
            await asyncio.sleep(0.1)
            assert not offering.done()
            assert other.metrics()["inbox_bytes"] < 6 << 20
            assert resident_bytes() - before < 20_000_000
            offering.cancel()

    run(main())


def test_a_new_socket_under_an_old_number_is_nobody_elses(run: Run) -> None:
    """A connection that was watched in both directions leaves nothing behind in the loop."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with connection_pair(there=Wire(hold_at=0)) as (one, _):
            sending = asyncio.create_task(one.send(bytes(BIG)))
            await until(lambda: one.metrics()["outbox_bytes"] > 0)
            number = one._core.fileno()
            one.abort()
            with pytest.raises(ClosedError):
                await sending
            pair = sorted(socket.socketpair(), key=lambda end: end.fileno() != number)
            with pair[0] as ours, pair[1] as theirs:
                assert ours.fileno() == number
                came = asyncio.Event()
                loop.add_reader(number, came.set)
                theirs.send(b"x")
                await came.wait()
                loop.remove_reader(number)
                assert not loop.remove_writer(number)

    run(main())


def test_a_loop_that_closes_with_connections_open_leaves_nothing() -> None:
    """A program that ends in the middle is not held up, and gives its descriptors back."""
    with chaos.nothing_left():
        loop = asyncio.new_event_loop()
        stack = contextlib.AsyncExitStack()

        async def begin() -> tuple[AsyncConnection, AsyncConnection]:
            return await stack.enter_async_context(connection_pair())

        one, other = loop.run_until_complete(begin())
        receiving = loop.create_task(other.recv())
        loop.run_until_complete(asyncio.sleep(0))
        receiving.cancel()
        loop.run_until_complete(asyncio.gather(receiving, return_exceptions=True))
        loop.close()
        one.abort()
        other.abort()
        one.abort()
        with pytest.raises(ClosedError):
            one.send(b"x")


def test_small_messages_are_not_held_back(run: Run) -> None:
    """TCP_NODELAY is set on both ends: no message waits 40 ms for an acknowledgement."""
    seen = []

    async def handler(connection: AsyncConnection) -> None:
        seen.append(no_delay(connection))

    async def main() -> None:
        async with (
            listen("tcp://127.0.0.1:0", handler) as listener,
            connect(listener.url) as connection,
        ):
            seen.append(no_delay(connection))
            with pytest.raises(BrokenError):
                await connection.recv()

    run(main())
    assert seen == [1, 1]


def test_another_thread_is_told_that_it_is_the_wrong_one(run: Run) -> None:
    """A call from outside of the loop's thread fails at once, and never loses a wake-up."""

    async def main() -> None:
        async with connection_pair() as (one, other):
            for use in (lambda: one.send(b"x"), lambda: one.send_many([b"x"])):
                with pytest.raises(BusyError, match="thread"):
                    await asyncio.to_thread(use)
            with pytest.raises(BusyError, match="thread"):
                await asyncio.to_thread(lambda: next(iter(one.recv())))
            await one.send(b"fine")
            assert await other.recv() == [b"fine"]

    run(main())


def test_another_loop_is_told_so() -> None:
    """A connection that outlived its loop fails in the next one instead of waiting for ever."""
    with asyncio.Runner() as first, asyncio.Runner() as second:
        stack = contextlib.AsyncExitStack()

        async def begin() -> AsyncConnection:
            one, _ = await stack.enter_async_context(connection_pair())
            return one

        connection = first.run(begin())

        async def use() -> None:
            await asyncio.wait_for(connection.recv(), 5)

        with pytest.raises((RuntimeError, BusyError)):
            second.run(use())
        first.run(stack.aclose())


def test_a_forked_child_is_refused_and_disturbs_nobody(url: str) -> None:
    """Two processes never write into one stream; the child's end goes without a word."""
    with served(url) as connection:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                connection.send(b"from the child")
            except Error as error:
                status = 0 if "fork" in str(error) else 2
            connection.abort()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        connection.send(b"from the parent")
        assert connection.recv(timeout=20) == [b"from the parent"]


def test_a_broken_pipe_is_an_error_and_no_signal() -> None:
    """A program that leaves SIGPIPE deadly, as a command-line tool does, survives a lost peer."""
    program = """
import signal, socket, threading
from forebay.errors import BrokenError
from forebay._core import MessageConnection
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
ours, theirs = socket.socketpair()
connection = MessageConnection(ours.detach(), peer="the tester")
theirs.close()
try:
    while True:
        connection.send_blocking(b"x" * 100_000)
except BrokenError:
    print("told")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stdout) == (0, "told\n"), ended.stderr


@contextlib.contextmanager
def served(url: str) -> Iterator[Connection]:
    """A blocking connection to an echo that runs in a thread of its own."""
    ready: list[str] = []
    began, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with listen(url, echo) as listener:
            ready.append(listener.url)
            began.set()
            await asyncio.get_running_loop().run_in_executor(None, over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert began.wait(20)
        with connect(ready[0]) as connection:
            yield connection
    finally:
        over.set()
        thread.join()


def dialled(url: str) -> socket.socket:
    """A bare socket to a listener."""
    if url.startswith("unix://"):
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(url.removeprefix("unix://"))
        return raw
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)))


def read_all(raw: socket.socket) -> bytes:
    """Everything until the end of the stream."""
    got = b""
    while more := raw.recv(65_536):
        got += more
    return got


def no_delay(connection: AsyncConnection) -> int:
    """Whether small messages leave at once."""
    with socket.socket(fileno=os.dup(connection._core.fileno())) as shown:
        return shown.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
