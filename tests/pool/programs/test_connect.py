from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

import forebay
from forebay.pool import Connected, Started
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, eventually

LISTEN = Path(__file__).parent / "backends/listen.py"
SERVER = (sys.executable, "-I", "-S", str(LISTEN), "unix", "{socket}")


class Client:
    """A client of the line server, as a user would bring it along."""

    made = 0
    closed = 0

    def __init__(self, path: str) -> None:
        type(self).made += 1
        self.path = path

    def ask(self, text: bytes) -> bytes:
        """One exchange."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path)
            connection.sendall(text)
            return connection.recv(100)

    def close(self) -> None:
        """Called when the service ends."""
        type(self).closed += 1


@pytest.fixture(autouse=True)
def counted() -> None:
    """Start counting anew."""
    Client.made = Client.closed = 0


def connect(started: Started) -> Client:
    """A connect function."""
    return Client(started.socket_path or "")


def command(connect: Any, **options: Any) -> forebay.Command:
    """The line server, with a client."""
    return forebay.Command(SERVER, connect=connect, **options)


def broken_off(pool: forebay.ServicePool, asked: forebay.Command) -> int:
    """Leave a block by an exception; the process that was lent."""
    pids = []

    def hold() -> None:
        with pool.acquire(asked) as backend:
            pids.append(backend.lease.pid)
            raise KeyError

    with pytest.raises(KeyError):
        hold()
    return pids[0]


def test_an_existing_client_is_pooled_with_its_program(pool_of: PoolOf) -> None:
    """Made once per program, lent with it, closed with it."""
    with pool_of(max_size=1) as pool:
        for _ in range(3):
            with pool.acquire(command(connect)) as backend:
                assert backend.client.ask(b"hello") == b"HELLO"
        assert (Client.made, Client.closed, pool.stats()["starts"]) == (1, 0, 1)
    assert Client.closed == 1


def test_a_client_cannot_be_had_after_the_lease(pool: forebay.ServicePool) -> None:
    """Whoever keeps the backend does not reach the next holder's program."""
    with pool.acquire(command(connect)) as backend:
        assert backend.client is backend.client
    with pytest.raises(forebay.StaleError):
        _ = backend.client
    with pytest.raises(forebay.StaleError):
        _ = backend.started


def test_a_program_without_a_connect_function_has_no_client(pool: forebay.ServicePool) -> None:
    """The error says what to give."""
    with pool.acquire(forebay.Command(SERVER)) as backend:
        with pytest.raises(forebay.ConfigError, match="connect function"):
            _ = backend.client
        with pytest.raises(forebay.ConfigError, match="inherited socket"):
            _ = backend.socket


def test_what_a_connect_function_raises_reaches_the_caller(pool: forebay.ServicePool) -> None:
    """As it is; the program, which nobody could use, is ended."""

    def refuse(started: Started) -> None:
        raise LookupError(f"no licence for {started.pid}")

    with pytest.raises(LookupError, match="no licence for"), pool.acquire(command(refuse)):
        pass
    assert eventually(lambda: pool.stats()["live"] == 0)


def test_a_program_that_dies_while_it_is_connected_to_is_told(pool: forebay.ServicePool) -> None:
    """The death says more than the broken connection."""

    def murder(started: Started) -> None:
        os.kill(started.pid, signal.SIGKILL)
        raise ConnectionResetError("it hung up")

    raising = pytest.raises(forebay.DiedError, match="SIGKILL")
    with raising as caught, pool.acquire(command(murder)):
        pass
    assert caught.value.signal == signal.SIGKILL


def test_a_connect_function_is_told_how_long_its_caller_waits(pool: forebay.ServicePool) -> None:
    """So that it can keep to the caller's deadline."""
    seen: list[float | None] = []

    def look(started: Started) -> object:
        seen.append(started.timeout)
        return object()

    with pool.acquire(command(look), timeout=7):
        pass
    assert seen[0] is not None
    assert 0 < seen[0] <= 7


def test_an_exception_in_the_block_ends_the_program(pool: forebay.ServicePool) -> None:
    """Nobody can tell what an unknown client has left half done."""
    victim = broken_off(pool, command(connect))
    with pool.acquire(command(connect)) as backend:
        assert backend.lease.pid != victim
    assert Client.closed == 1


def test_an_exception_ends_a_program_that_is_spoken_to_directly(
    pool: forebay.ServicePool,
) -> None:
    """The answer to a call that was broken off is never read by the next holder."""
    cat = forebay.Command(["cat"], stdio=True)
    victim = broken_off(pool, cat)
    with pool.acquire(cat) as backend:
        assert backend.lease.pid != victim


def test_a_holder_can_have_the_program_ended(pool: forebay.ServicePool) -> None:
    """For what only the holder knows."""
    with pool.acquire(command(connect)) as backend:
        victim = backend.lease.pid
        backend.lease.discard()
    assert eventually(lambda: not alive(victim))


def test_a_client_says_itself_whether_it_may_be_used_again(pool: forebay.ServicePool) -> None:
    """Then an exception in the block does not cost the program."""
    fit = True

    def careful(started: Started) -> Connected:
        return Connected(connect(started), reusable=lambda: fit)

    asked = command(careful)
    first = broken_off(pool, asked)
    with pool.acquire(asked) as backend:
        assert backend.lease.pid == first
        fit = False
    fit = True
    with pool.acquire(asked) as backend:
        assert backend.lease.pid != first


def test_a_plain_connect_function_serves_an_event_loop_from_a_thread(
    pool: forebay.ServicePool,
) -> None:
    """It may block; the loop does not."""
    threads = []

    def blocking(started: Started) -> Client:
        threads.append(threading.current_thread())
        return connect(started)

    async def main() -> None:
        async with pool.acquire(command(blocking)) as backend:
            assert await asyncio.to_thread(backend.client.ask, b"x") == b"X"
        async with pool.acquire(command(blocking)):
            pass

    asyncio.run(main(), debug=True)
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


class LoopClient:
    """A client that belongs to a loop."""

    closed_on: ClassVar[list[asyncio.AbstractEventLoop]] = []

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Awaited on its own loop."""
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is self.loop
        self.closed_on.append(self.loop)


async def connect_on_loop(started: Started) -> LoopClient:
    """A connect function for `async with`."""
    await asyncio.sleep(0)
    return LoopClient()


def test_a_coroutine_function_connects_once_per_loop(pool: forebay.ServicePool) -> None:
    """A client never wanders from one loop to another, the program does."""
    asked = command(connect_on_loop)
    clients, pids = [], []

    async def main() -> None:
        for _ in range(2):
            async with pool.acquire(asked) as backend:
                clients.append(backend.client)
                pids.append(backend.lease.pid)

    asyncio.run(main(), debug=True)
    asyncio.run(main(), debug=True)
    assert len(set(pids)) == 1
    assert [len({id(client) for client in clients[at : at + 2]}) for at in (0, 2)] == [1, 1]
    assert clients[0] is not clients[2]
    with pytest.raises(forebay.ConfigError, match="async with"), pool.acquire(asked):
        pass


def test_a_client_is_closed_on_its_loop_while_that_runs(pool: forebay.ServicePool) -> None:
    """Its descriptors go with the program, not with the garbage collector."""
    LoopClient.closed_on.clear()

    async def main() -> None:
        async with pool.acquire(command(connect_on_loop)) as backend:
            backend.lease.discard()
        assert await asyncio.to_thread(eventually, lambda: bool(LoopClient.closed_on))

    asyncio.run(main(), debug=True)
    assert len(LoopClient.closed_on) == 1


def test_a_cancelled_connect_leaves_nothing(pool: forebay.ServicePool) -> None:
    """What a thread still makes is closed; the program is ended."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(started: Started) -> Client:
        begun.set()
        assert go_on.wait(10)
        return connect(started)

    async def enter() -> None:
        async with pool.acquire(command(slow)):
            raise AssertionError("it is still connecting")

    async def main() -> None:
        task = asyncio.create_task(enter())
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        assert await asyncio.to_thread(eventually, lambda: bool(Client.closed))

    asyncio.run(main())
    assert (Client.made, Client.closed) == (1, 1)
    assert eventually(lambda: pool.stats()["live"] == 0)


def test_a_connect_function_that_takes_too_long_is_told(pool: forebay.ServicePool) -> None:
    """The caller's deadline holds on a loop, whatever the function awaits."""

    async def forever(started: Started) -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        async with pool.acquire(command(forever), timeout=2):
            pass

    with pytest.raises(forebay.DeadlineError, match="connect function"):
        asyncio.run(main())
