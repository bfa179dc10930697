"""The client of event loops, on each of the loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from forebay_client import AsyncClient, errors
from tests.client.conftest import TOKEN
from tests.client.scripted_server import (
    CLOSE,
    ScriptedServer,
    accepted,
    answer,
    as_json,
    problem,
    stream,
)
from tests.client.tunnel import Tunnel
from tests.loops import Run, run
from tests.transport.certificates import Authority

__all__ = ["run"]

Connect = Callable[..., AsyncClient]


@pytest.fixture
def connect(server: ScriptedServer, authority: Authority) -> Connect:
    """Makes clients of the server."""

    def connect(**options: Any) -> AsyncClient:
        return AsyncClient(server.url, TOKEN, ca_file=authority.ca, timeout=5.0, **options)

    return connect


def test_a_cancelled_wait_gives_its_connection_back(
    run: Run, server: ScriptedServer, connect: Connect
) -> None:
    """The request goes on, and the next one is not short of connections."""
    gate = threading.Event()
    server.answers = [accepted(), lambda _: problem(409, "not_ended", str(gate.wait(5)))]

    async def main() -> None:
        async with connect() as client:
            request = await client.submit("hold")
            task = asyncio.ensure_future(request.result())
            await asyncio.to_thread(server.wait_for, 2)
            assert len(client._io.used) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client._io.used == set()
            assert client._session._counts["wait"] == 0
            server.answers = [answer(200, msgspec.msgpack.encode(1), "application/msgpack")]
            assert await request.result() == 1

    run(main())
    gate.set()


def test_leaving_tells_those_who_wait(run: Run, server: ScriptedServer, connect: Connect) -> None:
    """And leaves no connection behind."""
    gate = threading.Event()
    server.answers = [accepted(), lambda _: [CLOSE] * (1 + gate.wait(5))]

    async def main() -> None:
        client = connect()
        request = await client.submit("hold")
        task = asyncio.ensure_future(request.result())
        await asyncio.to_thread(server.wait_for, 2)
        await client.aclose()
        with pytest.raises(errors.ClosedError):
            await task
        with pytest.raises(errors.ClosedError):
            await client.info()

    run(main())
    gate.set()


def test_a_stream_goes_on_and_is_left(run: Run, server: ScriptedServer, connect: Connect) -> None:
    """Behind its last event; leaving the loop closes its connection."""
    server.answers = [
        stream(("3", "log", {"offset": 0, "text": "grü"}), end=False),
        stream(("9", "log", {"offset": 3, "text": "n\n"})),
        stream(("0", "begin", {}), ("1", "ended", {"seq": 1}))[:-2],
        stream(("1", "progress", {"done": 1}))[:-2],
    ]

    async def main() -> None:
        async with connect() as client:
            request = await client.get("000000000001")
            assert "".join([text async for text in request.logs()]) == "grün\n"
            events = client.follow(names="a")
            async for event in events:
                assert event == {"seq": 1, "event": "ended"}
                break
            await events.aclose()
            assert client._io.used == set()
            progress = request.progress()
            assert (await anext(progress)).done == 1
            await progress.aclose()
            assert client._io.used == set()

    run(main())
    assert server.received[1].headers["last-event-id"] == "3"


def test_a_proxy_connects(
    run: Run, server: ScriptedServer, connect: Connect, tunnel: Tunnel
) -> None:
    """TLS begins behind it."""
    server.answers = [as_json({"pid": 1})]

    async def main() -> None:
        async with connect(proxy=f"http://{tunnel.address}") as client:
            assert await client.info() == {"pid": 1}

    run(main())
    assert [one.method for one in tunnel.asked] == ["CONNECT"]


def test_a_connection_that_breaks_is_made_anew(
    run: Run, server: ScriptedServer, connect: Connect
) -> None:
    """Within a submission, which is one request by its key."""
    server.answers = [as_json({"pid": 1}), CLOSE, [b"HTTP/1.1 202", CLOSE], accepted("a")]

    async def main() -> None:
        async with connect() as client:
            await client.info()
            assert (await client.submit("x")).id == "a"

    run(main())
    assert len({one.headers["idempotency-key"] for one in server.received[1:]}) == 1


def test_errors_of_the_way_are_errors(run: Run, authority: Authority) -> None:
    """A refused connection, and a peer without TLS."""

    async def main() -> None:
        async with AsyncClient("http://127.0.0.1:9", timeout=5.0) as client:
            with pytest.raises(errors.BrokenError, match="cannot be reached"):
                await client.info()

    run(main())
