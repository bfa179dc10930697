"""Native handlers answer from a thread of their own, and correctly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import BrokenError, ConfigError, ProtocolError
from forebay.testing.chaos import nothing_left
from forebay.transport import AsyncConnection, Connection, ConnectionLimits, connect, listen, native
from tests.transport.message_bytes import message, preface, resident_bytes, token

WAIT_S = 20
TEN_MB = 10_000_000
ROUNDS = 5
"""Of a comparison that other programs on the machine may spoil: one of them must hold."""


@pytest.fixture(params=["tcp", "unix"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"unix://{tmp_path}/s"


@pytest.fixture
def spinner() -> Iterator[None]:
    """A thread that computes in Python for as long as the test runs."""
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    yield
    over.set()
    thread.join()


def exchange(connection: Connection, *frames: bytes) -> list[bytes]:
    connection.send(list(frames), timeout=WAIT_S)
    return [bytes(frame) for frame in connection.recv(timeout=WAIT_S)]


def test_echo_returns_frames_of_all_sizes_in_order(url: str):
    """What goes in comes out: empty frames, odd sizes, many frames, 10 MB."""
    source = random.Random(7)
    sizes = [[0], [1, 0, 2], [65_536, 65_537], [100] * 1000, [TEN_MB, 3], [0, TEN_MB // 2, 0]]
    with listen(url, native=native.Echo()) as listener, connect(listener.url) as connection:
        for lengths in sizes:
            frames = [source.randbytes(length) for length in lengths]
            assert exchange(connection, *frames) == frames


def test_pipelined_messages_come_back_in_order(url: str):
    """A client need not wait for one answer to send the next request."""
    with listen(url, native=native.Echo()) as listener, connect(listener.url) as connection:
        connection.send_many([str(number).encode() for number in range(5000)], timeout=WAIT_S)
        got = [int(bytes(connection.recv(timeout=WAIT_S)[0])) for _ in range(5000)]
    assert got == list(range(5000))


def test_many_clients_are_served_at_once():
    """None is forgotten, and each gets its own answers."""

    async def run() -> None:
        async with listen("tcp://127.0.0.1:0", native=native.Echo()) as listener:

            async def client(number: int) -> None:
                async with connect(listener.url, timeout=WAIT_S) as connection:
                    for turn in range(5):
                        await connection.send([b"%d" % number, b"%d" % turn])
                        assert await connection.recv() == [b"%d" % number, b"%d" % turn]

            await asyncio.gather(*(client(number) for number in range(300)))
            assert listener.metrics()["messages"] == 1500
            assert listener.metrics()["failed"] == 0

    asyncio.run(run())


def test_a_store_answers_with_what_was_put_last(url: str):
    """Readers get whole values, new or old, while a program replaces them."""
    store = native.Store()
    with listen(url, native=store) as listener, connect(listener.url) as connection:
        assert exchange(connection, b"weights") == [b""]
        store.put("weights", [bytearray(b"one"), memoryview(b"two")])
        assert exchange(connection, b"weights") == [b"one", b"two"]
        store.put(b"weights", b"three")
        assert exchange(connection, b"weights", b"none", b"weights") == [b"three", b"", b"three"]
        assert store.delete("weights")
        assert not store.delete("weights")
        assert exchange(connection, b"weights") == [b""]
        assert store.metrics() == {"values": 0, "hits": 3, "misses": 3}


def test_a_copied_value_is_the_callers_again_and_a_referenced_one_is_not_copied():
    """`copy` means what it says, and a reference ends with the key."""
    store = native.Store()
    copied, referenced = bytearray(b"a" * 100_000), bytearray(b"b" * 100_000)
    store.put("copied", copied)
    store.put("referenced", referenced, copy=False)
    copied[:1], referenced[:1] = b"x", b"y"
    with (
        listen("tcp://127.0.0.1:0", native=store) as listener,
        connect(listener.url) as connection,
    ):
        assert exchange(connection, b"copied")[0][:2] == b"aa"
        assert exchange(connection, b"referenced")[0][:2] == b"yb"
    copied.clear()
    with pytest.raises(BufferError):
        referenced.clear()
    store.delete("referenced")
    referenced.clear()


def test_a_reference_that_an_answer_held_last_ends_without_the_stores_help():
    """Memory comes back though nobody calls the store again."""
    store = native.Store()
    value = bytearray(TEN_MB)
    store.put("value", value, copy=False)
    with (
        listen("tcp://127.0.0.1:0", native=store) as listener,
        connect(listener.url, limits=ConnectionLimits(max_inbox_bytes=1)) as connection,
    ):
        connection.send(b"value")
        wait_for(lambda: store.metrics()["hits"] == 1)
        store.delete("value")
        with pytest.raises(BufferError):
            value.clear()
        assert len(connection.recv(timeout=WAIT_S)[0]) == TEN_MB
        wait_for(lambda: cleared(value))


def test_an_empty_value_is_refused():
    """A miss and a value cannot be taken for each other."""
    with pytest.raises(ConfigError, match="empty"):
        native.Store().put("key", b"")


def test_health_tells_the_status_and_how_old_it_is(url: str):
    """A check sees what the program said, and when."""
    health = native.Health("starting")
    with listen(url, native=health) as listener, connect(listener.url) as connection:
        status, counted = exchange(connection, b"?")
        assert status == b"starting"
        assert json.loads(counted)["connections"] == 1
        health.set("ok")
        status, counted = exchange(connection, b"?")
        known = json.loads(counted)
        assert status == b"ok"
        assert known["messages"] == 2
        assert known["status_age_s"] <= known["uptime_s"]


def test_forward_passes_messages_both_ways_and_the_end(tmp_path: Path):
    """A front and what is behind it look like one listener, over another kind of socket."""

    async def upper(connection: AsyncConnection) -> None:
        async for received in connection:
            await connection.send([bytes(frame).upper() for frame in received])
        await connection.send(b"goodbye")

    async def run() -> None:
        async with (
            listen(f"unix://{tmp_path}/back", upper, token="inner") as back,
            listen(
                "tcp://127.0.0.1:0", native=native.Forward(back.url, token="inner"), token="outer"
            ) as front,
        ):
            async with connect(front.url, token="outer") as connection:
                await connection.send([b"a", b"b" * TEN_MB])
                small, large = await connection.recv()
                assert (small, bytes(large)) == (b"A", b"B" * TEN_MB)
            raw = socket.create_connection(front.url.removeprefix("tcp://").split(":"))
            with raw:
                raw.sendall(preface() + token(b"outer") + message(b"last"))
                raw.shutdown(socket.SHUT_WR)
                got = await asyncio.to_thread(read_all, raw)
            assert got.endswith(message(b"LAST") + message(b"goodbye"))

    asyncio.run(run())


def test_forward_slows_a_client_down_to_its_target():
    """A target that never reads costs bounded memory, and its end is the client's."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host, port = deaf.getsockname()
        target = native.Forward(f"tcp://{host}:{port}")
        with (
            nothing_left(),
            listen("tcp://127.0.0.1:0", native=target) as listener,
            dialled(listener.url) as greedy,
        ):
            greedy.sendall(preface())
            taken, _ = deaf.accept()
            taken.sendall(preface())
            greedy.settimeout(1.0)
            before = resident_bytes()
            fill(greedy)
            assert resident_bytes() - before < 30_000_000
            taken.close()
            greedy.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionError):
                read_all(greedy)
            wait_for(lambda: listener.connections == 0)


def test_a_forwarded_client_that_is_gone_ends_at_its_target_too():
    """A target does not keep connections of clients that died."""
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        host, port = upstream.getsockname()
        target = native.Forward(f"tcp://{host}:{port}")
        with listen("tcp://127.0.0.1:0", native=target) as listener:
            with dialled(listener.url) as client:
                client.sendall(preface() + message(b"last words"))
                taken, _ = upstream.accept()
                taken.sendall(preface())
            with taken:
                taken.settimeout(WAIT_S)
                assert read_all(taken) == preface() + message(b"last words")
            wait_for(lambda: listener.connections == 0)


def test_forward_to_nobody_ends_the_client_and_says_why():
    """A client is not left waiting for a target that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    target = native.Forward(f"tcp://127.0.0.1:{port}")
    with listen("tcp://127.0.0.1:0", native=target) as listener:
        with connect(listener.url) as connection, pytest.raises(BrokenError):
            connection.recv(timeout=WAIT_S)
        assert "refused" in listener.metrics()["last_failure"]


def test_forward_to_a_socket_that_is_not_there_names_it(tmp_path: Path):
    """Unlike a port, a path can be refused while its client is let in."""
    with listen("tcp://127.0.0.1:0", native=native.Forward(f"unix://{tmp_path}/none")) as listener:
        with connect(listener.url) as connection, pytest.raises(BrokenError):
            connection.recv(timeout=WAIT_S)
        told = listener.metrics()["last_failure"]
    assert f"connect to the target {tmp_path}/none: No such file" in told


def test_a_table_answers_by_name_and_gives_the_rest_to_python(tmp_path: Path):
    """One address serves weights without the GIL and everything else in Python."""
    store, health = native.Store(), native.Health()
    store.put("weights", b"w" * 1000)
    table = native.Table({"get": store, "health": health, b"echo": native.Echo()})
    seen: list[list[bytes]] = []

    async def handler(connection: AsyncConnection) -> None:
        async for received in connection:
            seen.append(received)
            await connection.send(b"python")

    async def run() -> None:
        async with (
            listen(f"unix://{tmp_path}/s", handler, native=table) as listener,
            connect(listener.url) as connection,
            connect(listener.url) as other,
        ):
            await connection.send_many(
                [[b"get", b"weights"], [b"echo", b"1", b"2"], [b"train"], [b"get", b"weights"]]
            )
            assert await connection.recv() == [b"w" * 1000]
            assert await connection.recv() == [b"1", b"2"]
            assert await connection.recv() == await connection.recv() == [b"python"]
            await other.send([b"health"])
            assert (await other.recv())[0] == b"ok"
            assert listener.metrics()["handed_over"] == 1
            assert listener.connections == 2

    asyncio.run(run())
    assert seen == [[b"train"], [b"get", b"weights"]]


@pytest.mark.parametrize("opening", [[b"up"], [b"up", b"first"]])
def test_a_forward_in_a_table_keeps_its_connection(url: str, opening: list[bytes]):
    """The name opens a way to the target; everything behind it passes, names of the table too."""
    with (
        listen("tcp://127.0.0.1:0", native=native.Echo()) as back,
        listen(
            url, native=native.Table({"up": native.Forward(back.url), "no": native.Store()})
        ) as front,
        connect(front.url) as connection,
    ):
        connection.send_many([opening, [b"no", b"key"], [b"last"]])
        if opening[1:]:
            assert connection.recv(timeout=WAIT_S) == opening[1:]
        assert connection.recv(timeout=WAIT_S) == [b"no", b"key"]
        assert connection.recv(timeout=WAIT_S) == [b"last"]


def test_a_table_without_a_handler_answers_unknown_names_with_an_empty_frame(url: str):
    """A client with a wrong name does not wait for ever."""
    with (
        listen(url, native=native.Table({"echo": native.Echo()})) as listener,
        connect(listener.url) as connection,
    ):
        assert exchange(connection, b"ehco", b"1") == [b""]


def test_a_spinning_thread_delays_python_and_not_the_native_handler(spinner: None):
    """The reason for all this: requests are answered though Python computes.

    Both servers and the thread that spins are in this process, the client is in one of its own, so
    that only the servers suffer.
    """

    async def echo(connection: AsyncConnection) -> None:
        async for received in connection:
            await connection.send(received)

    async def run() -> tuple[float, float]:
        async with (
            listen("tcp://127.0.0.1:0", echo) as slow,
            listen("tcp://127.0.0.1:0", native=native.Echo()) as fast,
        ):
            client = await asyncio.create_subprocess_exec(
                *round_trips(slow.url, fast.url), stdout=asyncio.subprocess.PIPE
            )
            told, _ = await asyncio.wait_for(client.communicate(), WAIT_S)
            python_s, native_s = json.loads(told)
            return python_s, native_s

    rounds: list[str] = []
    while len(rounds) < ROUNDS:  # another program may delay the native handler in one of them
        python_s, native_s = asyncio.run(run())
        if native_s * 3 < python_s:
            return
        rounds.append(f"native {native_s:.6f} s, Python {python_s:.6f} s")
    pytest.fail("\n".join(rounds))


def test_a_client_that_never_reads_is_not_read_from_either():
    """Its answers wait in bounded memory; the others are served meanwhile."""
    with listen("tcp://127.0.0.1:0", native=native.Echo()) as listener:
        host, port = listener.url.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as greedy:
            greedy.sendall(preface())
            greedy.settimeout(1.0)
            before = resident_bytes()
            fill(greedy)
            assert resident_bytes() - before < 30_000_000
            with connect(listener.url) as connection:
                assert exchange(connection, b"still here") == [b"still here"]


@pytest.mark.parametrize("sent", [b"", b"FB", b"FBAY\x01\x00\x03" + bytes(20)])
def test_a_client_that_does_not_introduce_itself_is_dropped(sent: bytes):
    """Half a preface holds a place for as long as the handshake may last, and no longer."""
    with listen("tcp://127.0.0.1:0", native=native.Echo(), handshake_timeout=0.2) as listener:
        host, port = listener.url.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as loris:
            loris.sendall(sent)
            loris.settimeout(WAIT_S)
            read_all(loris)
        wait_for(lambda: listener.metrics()["late"] == 1)
        assert listener.connections == 0


@pytest.mark.parametrize(("shown", "count"), [(None, 1), ("wrong", 1), ("right", 0)])
def test_a_token_is_asked_for(shown: str | None, count: int):
    """Nobody is served without it."""
    with listen("tcp://127.0.0.1:0", native=native.Echo(), token="right") as listener:
        with connect(listener.url, token=shown) as connection:
            if count == 0:
                assert exchange(connection, b"x") == [b"x"]
            else:
                with pytest.raises((BrokenError, ProtocolError)):
                    exchange(connection, b"x")
        wait_for(lambda: listener.metrics()["failed"] == count)


def test_killed_clients_leave_nothing(url: str):
    """Connections that vanish in the middle of messages are forgotten, with all they held."""
    with nothing_left(), listen(url, native=native.Echo()) as listener:
        for cut in range(0, 200, 7):
            with dialled(listener.url) as raw:
                raw.sendall((preface() + message(b"x" * 100) + message(b"y" * 100))[:cut])
                if raw.family != socket.AF_UNIX:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for(lambda: listener.connections == 0)


def test_closing_while_busy_leaves_no_thread_and_no_descriptor(url: str):
    """A listener ends in the middle of traffic, and clients are told."""
    with nothing_left():
        ended = []

        def client() -> None:
            try:
                with connect(where) as connection:
                    while True:
                        exchange(connection, bytes(200_000))
            except BrokenError:
                ended.append(True)

        with listen(url, native=native.Echo()) as listener:
            where = listener.url
            threads = [threading.Thread(target=client) for _ in range(4)]
            for thread in threads:
                thread.start()
            wait_for(lambda: listener.metrics()["messages"] > 100)
        for thread in threads:
            thread.join(WAIT_S)
        assert len(ended) == 4


def test_what_was_received_before_the_close_is_answered():
    """A request that arrived is not lost to a restart."""
    with listen("tcp://127.0.0.1:0", native=native.Echo()) as listener:
        connection = connect(listener.url).__enter__()
        connection.send(bytes(3_000_000))
        wait_for(lambda: listener.metrics()["messages"] == 1)
        reader = threading.Thread(target=listener.close)
        reader.start()
        assert len(connection.recv(timeout=WAIT_S)[0]) == 3_000_000
        reader.join(WAIT_S)
        connection.abort()


def test_a_handler_that_would_get_nothing_is_refused():
    """A program that expects calls in Python is told that none would come."""

    async def handler(connection: AsyncConnection) -> None: ...

    with pytest.raises(ConfigError, match="Table"):
        listen("tcp://127.0.0.1:0", handler, native=native.Echo())
    with pytest.raises(ConfigError, match="event loop"):
        listen("tcp://127.0.0.1:0", handler, native=native.Table({})).__enter__()
    with pytest.raises(ConfigError, match="handler"):
        listen("tcp://127.0.0.1:0")  # type: ignore[call-overload]


# --- by hand ---


def dialled(url: str) -> socket.socket:
    if url.startswith("unix://"):
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(url.removeprefix("unix://"))
        return raw
    host, port = url.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)))


def fill(raw: socket.socket) -> None:
    """Send messages until nothing has moved for as long as the socket's timeout."""
    with contextlib.suppress(TimeoutError):
        while True:
            raw.sendall(message(bytes(100_000)))


def read_all(raw: socket.socket) -> bytes:
    got = b""
    while True:
        more = raw.recv(65_536)
        if not more:
            return got
        got += more


def wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def cleared(value: bytearray) -> bool:
    try:
        value.clear()
    except BufferError:
        return False
    return True


CLIENT = """
import json, statistics, sys, time
from forebay.transport import connect

def trip(url):
    with connect(url) as connection:
        times = []
        for _ in range(30):
            time.sleep(0.002)  # the load: between two requests the server's loop goes to sleep
            begun = time.perf_counter()
            connection.send(b"x" * 100)
            connection.recv()
            times.append(time.perf_counter() - begun)
    return statistics.median(times)

print(json.dumps([trip(url) for url in sys.argv[1:]]))
"""


def round_trips(*urls: str) -> list[str]:
    """A program that prints its median round trip to each listener, in seconds."""
    return [sys.executable, "-c", CLIENT, *urls]
