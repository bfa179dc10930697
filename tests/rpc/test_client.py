"""A client of several connections: choosing, reconnecting, and what is sent again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from forebay import rpc
from forebay.errors import BrokenError, ClosedError, ConfigError, DeadlineError, RemoteError
from forebay.rpc._target import Target

from .conftest import Run, descriptors
from .handlers import Handler, Place, place, until

__all__ = ["place"]


def client_of(place: Place, url: str, **more: Any) -> rpc.Client:
    return rpc.Client(url, **place.calling, **more)


def async_client_of(place: Place, url: str, **more: Any) -> rpc.AsyncClient:
    return rpc.AsyncClient(url, **place.calling, **more)


def cut(server: rpc.Server) -> None:
    """End all connections of a server without a word."""
    for session in server._sessions:
        with socket.socket(fileno=os.dup(session._connection.fileno())) as one:
            one.shutdown(socket.SHUT_RDWR)


class Counting:
    """Counts how often each piece of work ran, in whichever server."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()

    async def work(self, number: int) -> int:
        self.runs[number] += 1
        await asyncio.sleep(0.001 * (number % 5))
        return number * 2


def test_connections_open_as_calls_pile_up(run: Run, place: Place) -> None:
    """Nothing is opened before it is needed, and a call takes the least busy connection."""
    handler = Handler()

    async def work() -> None:
        async with (
            place.serve(handler) as server,
            async_client_of(place, server.url, connections=3) as client,
        ):
            assert client.connections == server.connections == 0
            for at in range(5):
                assert await client.call("echo", (at,)) == at
            assert client.connections == 1
            waiting = []
            for count in range(1, 7):
                waiting.append(asyncio.create_task(client.call("wait")))
                await until(lambda count=count: len(handler.seen) == count)
            assert client.connections == server.connections == 3
            calls = [len(session._tasks) for session in server._sessions]
            assert calls == [2, 2, 2]
            assert handler.gate is not None
            handler.gate.set()
            assert await asyncio.gather(*waiting) == ["waited"] * 6

    run(work())


def test_threads_futures_and_tasks_call_at_once(run: Run, place: Place) -> None:
    """All faces work at once, each on connections of its own kind."""
    handler = Handler()

    def threads(client: rpc.Client) -> None:
        def some(start: int) -> None:
            for at in range(start, start + 30):
                assert client.call("later", (at,), timeout=20) == at

        workers = [threading.Thread(target=some, args=(100 * at,)) for at in range(4)]
        for worker in workers:
            worker.start()
        futures = [client.submit("later", (at,)) for at in range(100)]
        assert [future.result(20) for future in futures] == list(range(100))
        for worker in workers:
            worker.join(20)
            assert not worker.is_alive()
        client.send_oneway("note", ("once",))
        with pytest.raises(KeyError) as caught:
            client.call("fail", timeout=20)
        assert isinstance(caught.value, RemoteError)

    async def work() -> None:
        async with (
            place.serve(handler) as server,
            async_client_of(place, server.url, connections=2) as client,
        ):
            with client_of(place, server.url, connections=2) as blocking:
                others = asyncio.create_task(asyncio.to_thread(threads, blocking))
                answers = await asyncio.gather(*(client.call("later", (at,)) for at in range(100)))
                assert answers == list(range(100))
                await others
                assert client.connections <= 2
                assert blocking.connections <= 2
        assert handler.seen == ["once"]

    run(work())


@pytest.mark.parametrize("face", ["awaited", "call", "submit"])
def test_no_call_is_lost_or_run_twice_while_servers_come_and_go(
    run: Run, place: Place, face: str
) -> None:
    """A server that leaves with grace hands its callers over to the next one, under load."""
    handler, count, servers = Counting(), 400, 4
    answers: list[int] = []

    def threads(client: rpc.Client, done: threading.Event) -> None:
        if face == "submit":
            futures: list[Future[int]] = []
            for number in range(count):
                futures.append(client.submit("work", (number,), None, 20.0))
                time.sleep(0.0005)  # spread over the servers
            answers.extend(future.result(20) for future in futures)
        else:
            numbers = iter(range(count))
            lock = threading.Lock()

            def some() -> None:
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    answers.append(client.call("work", (number,), timeout=20.0))

            workers = [threading.Thread(target=some) for _ in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(20)
        done.set()

    async def tasks(client: rpc.AsyncClient, done: threading.Event) -> None:
        async def one(number: int) -> None:
            await asyncio.sleep(0.0005 * number)
            answers.append(await client.call("work", (number,), timeout=20.0))

        await asyncio.gather(*(one(number) for number in range(count)))
        done.set()

    async def more_runs() -> None:
        enough = min(count, len(handler.runs) + count // (2 * servers))
        await until(lambda: len(handler.runs) >= enough)

    async def work() -> None:
        done, url = threading.Event(), place.url
        async with place.serve(handler, grace=10.0) as server:
            url = server.url
            client = client_of(place, url, connections=2)
            awaited = async_client_of(place, url, connections=2)
            loading = asyncio.create_task(
                tasks(awaited, done)
                if face == "awaited"
                else asyncio.to_thread(threads, client, done)
            )
            await more_runs()
        for _ in range(servers):
            async with place.serve(handler, url=url, grace=10.0):
                await more_runs()
        async with place.serve(handler, url=url, grace=10.0):
            await loading
            client.close()
            await awaited.aclose()

    run(work())
    assert sorted(answers) == [number * 2 for number in range(count)]
    assert set(handler.runs.values()) == {1}


def test_grace_lets_running_calls_finish_and_new_ones_go_elsewhere(run: Run, place: Place) -> None:
    """After a goodbye the running call ends, a new one waits for the next server."""
    first, second = Handler(), Handler()

    async def work() -> None:
        server = place.serve(first, grace=10.0)
        await server.__aenter__()
        client = async_client_of(place, server.url)
        running = asyncio.create_task(client.call("wait"))
        await until(lambda: first.seen)
        leaving = asyncio.create_task(server.aclose())
        await until(lambda: client.connections == 0)
        later = asyncio.create_task(client.call("echo", (5,), timeout=15.0))
        async with place.serve(second, url=server.url):
            assert await later == 5
            assert not running.done()
            assert first.gate is not None
            first.gate.set()
            assert await running == "waited"
            await leaving
            await client.aclose()
        assert first.cancelled == 0

    run(work())


def test_grace_ends(run: Run, place: Place) -> None:
    """What still runs after the grace is cancelled, and its caller told; without grace at once."""

    async def work() -> None:
        for grace in (0.1, None):
            handler = Handler()
            async with place.serve(handler) as server:
                client = async_client_of(place, server.url, timeout=0.2)
                running = asyncio.create_task(client.call("wait"))
                await until(lambda handler=handler: handler.seen)
                await server.aclose(grace=grace)
                with pytest.raises(BrokenError) as caught:
                    await running
                assert caught.value.delivered == "maybe"
                assert handler.cancelled == 1
                await client.aclose()

    run(work())


def test_a_call_that_may_have_run_is_not_sent_again(run: Run, place: Place) -> None:
    """A connection that breaks under a call raises, and the next call has a new connection."""
    handler = Handler()

    async def work() -> None:
        async with place.serve(handler) as server:
            client = async_client_of(place, server.url)
            blocking = client_of(place, server.url)
            running = asyncio.create_task(client.call("wait"))
            await until(lambda: handler.seen)
            cut(server)
            with pytest.raises(BrokenError) as caught:
                await running
            assert caught.value.delivered == "maybe"
            assert await client.call("echo", (1,)) == 1
            assert await asyncio.to_thread(blocking.call, "echo", (2,)) == 2
            cut(server)
            assert await asyncio.to_thread(blocking.call, "echo", (3,)) == 3
            assert handler.seen == ["waits"]
            assert handler.cancelled == 1
            blocking.close()
            await client.aclose()

    run(work())


def test_streams_come_over_any_connection(run: Run, place: Place) -> None:
    """A client's streams count as calls in flight, and begin at the next server where one left."""
    handler = Handler()

    def threads(client: rpc.Client) -> None:
        assert list(client.stream("count", (300,))) == list(range(300))
        items = client.stream("count", (10**9,), timeout=20)
        assert [next(items) for _ in range(3)] == [0, 1, 2]
        items.close()
        assert client.call("echo", (1,)) == 1

    async def work() -> None:
        async with place.serve(handler) as server:
            url = server.url
            client = async_client_of(place, url, connections=2)
            assert [item async for item in client.stream("count", (300,))] == list(range(300))
            async with contextlib.aclosing(client.stream("count", (10**9,))) as items:
                assert await anext(items) == 0
                assert await client.call("echo", (1,)) == 1
                assert server.connections == 2
            with client_of(place, url, connections=2) as blocking:
                await asyncio.to_thread(threads, blocking)
            await until(lambda: handler.seen == ["left"] * 4)
            cut_off = client.stream("count", (10**9,))
            assert await anext(cut_off) == 0
        with pytest.raises(BrokenError):
            async for _ in cut_off:
                pass
        async with place.serve(handler, url=url):
            assert [item async for item in client.stream("count", (3,))] == [0, 1, 2]
            await client.aclose()

    run(work())


def test_without_a_server_a_call_ends_in_time(
    run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call looks for a server within its own time, or that for connecting."""
    failed: list[BrokenError] = []
    open_on_loop = Target.open_on_loop

    async def opened(self: Target, timeout: float | None = None) -> rpc.Channel:
        try:
            return await open_on_loop(self, timeout)
        except BrokenError as error:
            failed.append(error)
            raise

    monkeypatch.setattr(Target, "open_on_loop", opened)
    url = place.url
    if place.scheme != "unix":
        with socket.create_server(("127.0.0.1", 0)) as once:
            port = once.getsockname()[1]
        url = f"{url.rpartition(':')[0]}:{port}"

    async def work() -> None:
        client = async_client_of(place, url, timeout=0.3)
        blocking = client_of(place, url, timeout=0.3)
        for call in (
            lambda: client.call("echo", (1,)),
            lambda: client.call("echo", (1,), timeout=0.2),
            lambda: asyncio.to_thread(blocking.call, "echo", (1,)),
            lambda: asyncio.to_thread(blocking.submit, "echo", (1,)),
            lambda: asyncio.to_thread(blocking.send_oneway, "note", (1,)),
        ):
            began = time.monotonic()
            with pytest.raises((BrokenError, DeadlineError)) as caught:
                await call()
            assert time.monotonic() - began < 5
            if isinstance(caught.value, BrokenError):
                assert caught.value.delivered == "no"
        failed.clear()
        late = asyncio.create_task(client.call("echo", (7,), timeout=15.0))
        await until(lambda: failed)
        async with place.serve(Handler(), url=url):
            assert await late == 7
        blocking.close()
        await client.aclose()

    run(work())


def test_cancelling_and_deadlines_reach_the_server(run: Run, place: Place) -> None:
    """Work without a waiting caller ends, whichever face began it; the connection stays in use."""
    handler = Handler()

    async def work() -> None:
        async with place.serve(handler) as server:
            client = async_client_of(place, server.url)
            blocking = client_of(place, server.url)
            task = asyncio.create_task(client.call("wait"))
            await until(lambda: len(handler.seen) == 1)
            task.cancel()
            await until(lambda: handler.cancelled == 1)
            with pytest.raises(DeadlineError) as caught:
                await client.call("wait", timeout=0.1)
            assert caught.value.timeout == 0.1
            await until(lambda: handler.cancelled == 2)
            future = await asyncio.to_thread(blocking.submit, "wait")
            await until(lambda: len(handler.seen) == 3)
            assert future.cancel()
            with pytest.raises(CancelledError):
                future.result(0)
            await until(lambda: handler.cancelled == 3)
            assert await client.call("echo", (1,)) == 1
            assert client.connections == blocking.connections == 1
            assert server.connections == 2
            blocking.close()
            await client.aclose()

    run(work())


def test_a_call_that_is_cancelled_while_it_connects_counts_no_call(run: Run, place: Place) -> None:
    """A connection that a cancelled call never used is not kept for it for ever."""
    handler = Handler()

    async def work() -> None:
        async with (
            place.serve(handler) as server,
            async_client_of(place, server.url, connections=2) as client,
        ):
            waiting = asyncio.create_task(client.call("wait"))
            await until(lambda: handler.seen)
            opening = asyncio.create_task(client.call("echo", (1,)))
            await asyncio.sleep(0)  # it has begun to connect
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert handler.gate is not None
            handler.gate.set()
            assert await waiting == "waited"
            assert await client.call("echo", (2,)) == 2
            (channels,) = client._loops.values()
            assert [entry.calls for entry in channels._channels._entries] == [0]

    run(work())


def sends_again() -> bool:
    return any(thread.name == "forebay-rpc-again" for thread in threading.enumerate())


async def leave_waiting(
    place: Place,
    client: rpc.Client,
    server: rpc.Server,
    handler: Handler,
    *timeouts: float | None,
) -> list[Future[Any]]:
    """Submit a call for each timeout behind one that runs, and have the server leave."""
    async with place.connect(server.url) as channel:
        running = asyncio.create_task(channel.call("wait"))
        await until(lambda: handler.seen)
        futures = [
            await asyncio.to_thread(client.submit, "note", (timeout,), None, timeout)
            for timeout in timeouts
        ]
        await until(lambda: not all(session._tasks for session in server._sessions))
        (session,) = (session for session in server._sessions if not session._tasks)
        await until(lambda: session._connection.counters()["inbox_calls"] == len(timeouts))
        await server.aclose()
        with pytest.raises(BrokenError):
            await running
    return futures


def test_a_cancelled_future_is_not_sent_again(
    run: Run, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent for a call that nobody waits for."""
    handler = Handler()

    async def work() -> None:
        async with place.serve(handler, max_calls=1) as server:
            client = client_of(place, server.url)
            (future,) = await leave_waiting(place, client, server, handler, 15.0)
        sent: list[Any] = []
        monkeypatch.setattr(rpc.Channel, "submit", lambda *call: sent.append(call))
        assert future.cancel()
        async with place.serve(handler, url=server.url):
            await until(lambda: not sends_again())
            assert sent == []
            client.close()

    run(work())


def test_futures_wait_for_a_server_side_by_side(run: Run, place: Place) -> None:
    """One that may look for a server for long holds up neither another one nor closing."""
    handler = Handler()

    async def work() -> None:
        async with place.serve(handler, max_calls=1) as server:
            client = client_of(place, server.url, timeout=1.0)
            patient, other = await leave_waiting(place, client, server, handler, 60.0, None)
        error = await asyncio.to_thread(other.exception, 15)
        assert isinstance(error, BrokenError)
        assert error.delivered == "no"
        assert not patient.done()
        client.close()
        assert isinstance(await asyncio.to_thread(patient.exception, 15), ClosedError)
        await until(lambda: not sends_again())

    run(work())


def test_closing_ends_calls_and_leaves_no_descriptor(run: Run, place: Place) -> None:
    """A closed client holds nothing, and says so."""
    handler = Handler()

    async def work() -> None:
        await asyncio.get_running_loop().getaddrinfo("localhost", 0)
        async with place.serve(handler) as server:
            before = descriptors()
            client = async_client_of(place, server.url, connections=2)
            blocking = client_of(place, server.url, connections=2)
            future = await asyncio.to_thread(blocking.submit, "wait")
            task = asyncio.create_task(client.call("wait"))
            await until(lambda: len(handler.seen) == 2)
            await asyncio.to_thread(blocking.close)
            await client.aclose()
            with pytest.raises(ClosedError):
                await task
            assert isinstance(await asyncio.to_thread(future.exception, 20), ClosedError)
            for call in (
                client.call("echo", (1,)),
                asyncio.to_thread(blocking.call, "echo", (1,)),
            ):
                with pytest.raises(ClosedError, match="make a new one"):
                    await call
            blocking.close()
            await client.aclose()
            await until(lambda: server.connections == 0)
            assert descriptors() <= before

    run(work())


def test_a_client_outlives_the_loops_that_used_it(place: Place, run: Run) -> None:
    """Connections of a loop that is closed are closed by the next one."""
    ready, done = threading.Event(), threading.Event()
    where: list[str] = []

    async def serve() -> None:
        async with place.serve(Handler()) as server:
            where.append(server.url)
            ready.set()
            await asyncio.to_thread(done.wait, 20)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        client = async_client_of(place, where[0])

        async def work() -> None:
            assert await client.call("echo", (1,)) == 1

        for _ in range(3):
            run(work())
            assert client.connections == 1
        run(client.aclose())
        assert client.connections == 0
    finally:
        done.set()
        thread.join(20)


def test_wrong_options_are_refused_before_anything_is_opened() -> None:
    """Mistakes are found where they are made."""
    for url, options in (
        ("http://host:1", {}),
        ("shm:///run/s", {}),
        ("tcp://127.0.0.1:1", {"connections": 0}),
        ("tcp://127.0.0.1:1", {"codec": "pickle"}),
        ("tls://127.0.0.1:1", {}),
        ("unix:///run/s", {"codec": "json"}),
    ):
        for kind in (rpc.Client, rpc.AsyncClient):
            with pytest.raises(ConfigError):
                kind(url, **options)
