"""Comms over real sockets: what `distributed` relies on, and what a bad peer can do."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed.comm import CommClosedError, connect, listen
from distributed.comm import utils as comm_utils
from distributed.comm.core import FatalCommClosedError
from distributed.comm.registry import backends
from distributed.protocol import to_serialize
from distributed.protocol.serialize import ToPickle

from forebay.dask import Backend, UnixBackend
from forebay.transport import listen as listen_for_messages
from forebay.transport import process_metrics, set_process_limits
from tests.loops import Run
from tests.other_user import as_nobody, needs_root

TIMEOUT_S = 20.0
ADDRESSES = {"forebay": "forebay://127.0.0.1", "forebay+unix": "forebay+unix://"}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Dask find the backends, installed or not."""
    monkeypatch.setitem(backends, "forebay", Backend())
    monkeypatch.setitem(backends, "forebay+unix", UnixBackend())


@pytest.fixture(params=list(ADDRESSES))
def address(request: pytest.FixtureRequest) -> str:
    """Where a listener may listen, for each backend."""
    return ADDRESSES[request.param]


@pytest.fixture
def impatient() -> Iterator[None]:
    """Have Dask give up after half a second."""
    with dask.config.set({"distributed.comm.timeouts.connect": "500ms"}):
        yield


@contextlib.asynccontextmanager
async def pair(address: str, **options: Any) -> AsyncIterator[tuple[Any, Any]]:
    """Both ends of a comm; `options` are those of the connecting end."""
    accepted: asyncio.Queue[Any] = asyncio.Queue()
    async with listen(address, accepted.put) as listener:
        ours = await connect(listener.contact_address, **options)
        theirs = await accepted.get()
    try:
        yield ours, theirs
    finally:
        ours.abort()
        theirs.abort()


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    while not holds():  # noqa: ASYNC110 - nobody announces it
        await asyncio.sleep(0.001)


def test_arrays_arrive_as_they_were_sent(run: Run, address: str) -> None:
    """Any dtype and length, alone or in a list, and what arrives may be changed in place."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            for count in (1, 100, 20_000, 1_000_000):
                array = np.arange(count)
                sent = {"x": to_serialize(array), "y": ToPickle([array, array + 1]), "z": None}
                writing = asyncio.create_task(ours.write(sent))
                got = await theirs.read()
                assert await writing > array.nbytes
                assert np.array_equal(got["x"], array)
                assert np.array_equal(got["y"][1], array + 1)
                got["x"][0] = got["y"][0][0] = 7

    run(main())


def test_both_ends_call_each_other_the_same(run: Run, address: str) -> None:
    """Logs and the dashboards of two processes name a comm alike."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            assert ours.peer_address == theirs.local_address
            assert ours.local_address == theirs.peer_address
            assert ours.local_address.startswith(address.partition("://")[0] + "://")
            assert ours.same_host

    run(main())


def test_a_comm_is_closed_once_its_peer_is_though_nobody_reads(run: Run, address: str) -> None:
    """A pool of connections never hands out a dead one."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            await theirs.close()
            await until(ours.closed)
            with pytest.raises(CommClosedError):
                await ours.write("x")
            with pytest.raises(CommClosedError):
                await ours.read()

    run(main())


def test_what_was_written_before_a_close_is_read_after_it(run: Run, address: str) -> None:
    """An answer is not lost because its sender left at once."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            await theirs.write({"last": "words"})
            await theirs.close()
            await until(ours.closed)
            assert await ours.read() == {"last": "words"}

    run(main())


def test_a_cancelled_read_closes_the_comm(run: Run, address: str) -> None:
    """A late answer is never taken for that of the next question."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ours.read(), 0.01)
            assert ours.closed()
            with pytest.raises(CommClosedError):
                await theirs.read()

    run(main())


def test_closing_ends_a_read_that_waits(run: Run, address: str) -> None:
    """A server that closes leaves no handler behind."""

    async def main() -> None:
        async with pair(address) as (ours, _):
            reading = asyncio.create_task(ours.read())
            await asyncio.sleep(0)
            await ours.close()
            with pytest.raises(CommClosedError):
                await reading
            await ours.close()

    run(main())


def test_a_message_that_is_written_is_let_go_of_as_it_leaves(run: Run, address: str) -> None:
    """A scheduler that answers with a gigabyte does not hold it until the last byte has left."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            arrays = [np.ones(1 << 20) for _ in range(8)]
            references = [weakref.ref(array) for array in arrays]
            message = {"x": [to_serialize(array) for array in arrays]}
            del arrays
            await ours.write(message)
            del message
            assert alive(references) >= 7  # most of it has not left yet
            await until(lambda: alive(references) <= 4)
            assert theirs._connection.metrics()["received_messages"] == 1  # Dask's handshake
            await theirs.read()
            assert not alive(references)

    def alive(references: list[Any]) -> int:
        return sum(reference() is not None for reference in references)

    run(main())


def test_closing_waits_for_what_was_written(run: Run, address: str) -> None:
    """An answer of many megabytes is not cut off by the close that follows it."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            array = np.arange(1 << 22)
            for _ in range(2):  # without being read, one is received
                await ours.write({"x": to_serialize(array)})
            closing = asyncio.create_task(ours.close())
            await asyncio.sleep(0.2)
            assert not closing.done()
            for _ in range(2):
                assert np.array_equal((await theirs.read())["x"], array)
            await closing

    run(main())


def test_a_comm_is_closed_as_soon_as_its_close_begins(run: Run, address: str) -> None:
    """Nobody writes what is lost when the close ends, nor waits for an answer."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            array = np.arange(1 << 22)
            for _ in range(2):  # without being read, one is received
                await ours.write({"x": to_serialize(array)})
            closing = asyncio.create_task(ours.close())
            await asyncio.sleep(0)
            assert ours.closed()
            with pytest.raises(CommClosedError):
                await ours.write("lost")
            with pytest.raises(CommClosedError):
                await ours.read()
            for _ in range(2):
                assert np.array_equal((await theirs.read())["x"], array)
            await closing
            with pytest.raises(CommClosedError):
                await theirs.read()

    run(main())


def test_closing_gives_up_a_peer_that_takes_nothing(
    run: Run, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is stopped does not keep its scheduler from ending."""
    monkeypatch.setattr("forebay.dask._comm.CLOSE_TIMEOUT_S", 0.1)

    async def main() -> None:
        async with pair(address) as (ours, _):
            for _ in range(2):  # without being read, one is received
                await ours.write({"x": to_serialize(np.ones(1 << 20))})
            await asyncio.wait_for(ours.close(), TIMEOUT_S)
            assert ours.closed()

    run(main())


def test_a_write_waits_for_a_peer_that_does_not_read(run: Run, address: str) -> None:
    """A slow worker does not fill the memory of whoever sends to it."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            block = np.ones(1 << 20, dtype="u1")
            written = 0

            async def write() -> None:
                nonlocal written
                for _ in range(100):
                    written += await ours.write({"x": to_serialize(block)})

            writing = asyncio.create_task(write())
            before = -1
            while written != before:
                before = written
                await asyncio.sleep(0.2)  # long enough for several writes
            assert written < 50 * block.nbytes
            for _ in range(100):
                await theirs.read()
            await writing
            assert written > 100 * block.nbytes

    run(main())


def test_large_messages_are_serialized_beside_the_loop(
    run: Run, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler answers others while a worker's array is packed or unpacked."""
    monkeypatch.setattr(comm_utils, "OFFLOAD_THRESHOLD", 10_000)
    offloaded: list[str] = []

    async def offload(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        offloaded.append(function.__name__)
        return function(*args, **options)

    monkeypatch.setattr("forebay.dask._comm.offload", offload)

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            await ours.write({"x": to_serialize(np.ones(100))})
            await theirs.read()
            assert offloaded == []
            await ours.write({"x": to_serialize(np.ones(10_000))})
            await theirs.read()
            assert offloaded == ["dumps", "loads"]

    run(main())


def test_an_unencrypted_scheme_is_refused_where_encryption_is_required(
    run: Run, address: str
) -> None:
    """A cluster that must be encrypted does not start otherwise."""

    async def main() -> None:
        with pytest.raises(RuntimeError, match="encryption required"):
            listen(address, print, require_encryption=True)
        async with listen(address, print) as listener:
            with pytest.raises(RuntimeError, match="encryption required"):
                await connect(listener.contact_address, require_encryption=True)

    run(main())


def test_keywords_of_other_backends_are_ignored(run: Run, address: str) -> None:
    """A newer Dask may say more than we know."""

    async def main() -> None:
        async with listen(address, print, nonsense=1, ssl_context=None) as listener:
            comm = await connect(listener.contact_address, nonsense=1, extra_conn_args={})
            await comm.close()

    run(main())


def test_a_silent_peer_does_not_hang_connect(run: Run, impatient: None) -> None:
    """A port that takes connections and says nothing is given up in time."""

    async def main() -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as silent,
            pytest.raises(OSError, match="Timed out"),
        ):
            await connect(f"forebay://127.0.0.1:{silent.getsockname()[1]}")

    run(main())


def test_a_peer_that_never_says_who_it_is_does_not_hang_connect(run: Run, impatient: None) -> None:
    """One that speaks our wire, and is no Dask, is given up in time."""

    async def main() -> None:
        async def mute(connection: Any) -> None:
            await connection.recv()
            await connection.recv()

        async with listen_for_messages("tcp://127.0.0.1:0", mute) as listener:
            port = listener.url.rpartition(":")[2]
            with pytest.raises(CommClosedError, match="did not finish its handshake"):
                await connect(f"forebay://127.0.0.1:{port}")

    run(main())


def test_another_protocol_is_told_at_once(run: Run) -> None:
    """Dialling the port of a dashboard is an error that says so, not thirty seconds of tries."""

    async def main() -> None:
        answered = asyncio.Event()

        async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
            await writer.drain()
            await reader.read()
            writer.close()
            answered.set()

        server = await asyncio.start_server(http, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            with pytest.raises(FatalCommClosedError, match="not a Forebay peer"):
                await connect(f"forebay://127.0.0.1:{port}")
            await answered.wait()
        finally:
            server.close()

    run(main())


def test_a_garbled_message_closes_the_comm(run: Run, address: str) -> None:
    """Wrong lengths are an error of the comm, never a wrong message."""

    async def main() -> None:
        async with pair(address) as (ours, theirs):
            await theirs._connection.send([b"\xc1234567", b"x"])
            with pytest.raises(CommClosedError, match="garbled"):
                await ours.read()
            assert ours.closed()

    run(main())


def test_stopping_closes_who_is_not_met_and_leaves_who_is(run: Run, impatient: None) -> None:
    """A listener that stops hangs nobody, and ends no comm."""

    async def main() -> None:
        accepted: asyncio.Queue[Any] = asyncio.Queue()
        listener = await listen(ADDRESSES["forebay"], accepted.put)
        comm = await connect(listener.contact_address)
        theirs = await accepted.get()
        reader, writer = await asyncio.open_connection(*listener.get_host_port())
        await until(lambda: bool(listener._meeting))  # it is accepted, and says nothing
        listener.stop()
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        await comm.write("x")
        assert await theirs.read() == "x"
        comm.abort()
        theirs.abort()
        listener.stop()

    run(main())


def test_a_peer_that_is_gone_before_it_is_met_takes_no_descriptor_with_it(run: Run) -> None:
    """A probe that connects and resets closes its own connection, and not that of another peer."""

    async def main() -> None:
        accepted: asyncio.Queue[Any] = asyncio.Queue()
        async with listen(ADDRESSES["forebay"], accepted.put) as listener:
            where = listener.get_host_port()
            for _ in range(20):
                probe = socket.create_connection(where)
                reset = struct.pack("ii", 1, 0)
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                probe.close()
            comm = await connect(listener.contact_address)
            theirs = await accepted.get()
            await asyncio.sleep(0.05)
            gc.collect()
            await comm.write("x")
            assert await theirs.read() == "x"
            comm.abort()
            theirs.abort()

    run(main())


def test_a_forgotten_comm_is_closed_with_a_warning(
    run: Run, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in the caller costs no descriptor, and can be found."""

    async def main() -> None:
        async with pair(address) as (_, theirs):
            comm = await connect_again(theirs)
            del comm
            gc.collect()
            await asyncio.sleep(0)

    async def connect_again(theirs: Any) -> Any:
        async with listen(address, print) as listener:
            return await connect(listener.contact_address)

    with caplog.at_level(logging.WARNING, "forebay.dask"):
        run(main())
    assert "Closing dangling comm" in caplog.text


def test_a_unix_listener_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    """A path that was given is used; one that was chosen goes with its directory."""

    def is_private(directory: Path) -> bool:
        return directory.stat().st_mode & 0o077 == 0

    async def main() -> None:
        async with listen(f"forebay+unix://{tmp_path}/own/comm", print) as listener:
            assert listener.listen_address == f"forebay+unix://{tmp_path}/own/comm"
            comm = await connect(listener.contact_address)
            await comm.close()
        async with listen("forebay+unix://127.0.0.1:0", print) as listener:
            chosen = Path(listener.listen_address.removeprefix("forebay+unix://"))
            assert is_private(chosen.parent)
        left.append(chosen.parent)

    left: list[Path] = []
    run(main())
    assert not left[0].exists()
    assert not list((tmp_path / "own").iterdir())


@pytest.fixture
def two_connections() -> Iterator[None]:
    """Have the process take no more than two."""
    before = process_metrics()["max_connections"]
    set_process_limits(max_connections=2)
    yield
    set_process_limits(max_connections=before)


def test_the_limit_of_connections_is_told_once(
    run: Run, two_connections: None, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator whose clients time out reads which limit to raise, in Dask's own log."""

    async def main() -> None:
        accepted: asyncio.Queue[Any] = asyncio.Queue()
        async with listen(ADDRESSES["forebay"], accepted.put) as listener:
            ours = await connect(listener.contact_address)
            theirs = await accepted.get()
            for _ in range(2):
                with pytest.raises(OSError, match="Timed out"):
                    await connect(listener.contact_address, timeout=0.3)
            [record] = [one for one in caplog.records if one.levelno == logging.WARNING]
            assert record.name == "distributed.comm.forebay"
            assert "this process may have 2; peers wait until one ends" in record.getMessage()
            ours.abort()
            theirs.abort()
            again = await connect(listener.contact_address)
            again.abort()
            (await accepted.get()).abort()

    run(main())


def test_nobody_at_a_unix_path_is_an_error_in_time(run: Run, tmp_path: Path) -> None:
    """A scheduler that is gone is told after the usual time."""

    async def main() -> None:
        with pytest.raises(OSError, match="Timed out"):
            await connect(f"forebay+unix://{tmp_path}/nobody", timeout=0.2)

    run(main())


@needs_root
def test_another_user_is_turned_away_over_loopback(caplog: pytest.LogCaptureFixture) -> None:
    """Dask loads what it is sent, and every user of the machine reaches 127.0.0.1."""

    def tell_first(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
            return stranger.recv(100)

    async def turned_away() -> str:
        async def handle(comm: Any) -> None:
            await comm.close()

        async with listen("forebay://127.0.0.1", handle) as listener:
            port = listener.get_host_port()[1]
            return await asyncio.to_thread(as_nobody, lambda: tell_first(port))

    with caplog.at_level(logging.WARNING):
        told = asyncio.run(turned_away())
    assert told == "b''" or "ConnectionResetError" in told
    assert "a peer that belongs to user 65534 was turned away" in caplog.text
