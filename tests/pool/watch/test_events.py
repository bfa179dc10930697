"""What happens in a pool, as a stream and in the log."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import threading

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import eventually
from tests.pool.services import Echo, Notes


def test_events_tell_the_life_of_a_service(pool_of: PoolOf) -> None:
    with pool_of(max_size=1) as pool, pool.events() as events:
        for _ in range(2):
            with pool.acquire(Notes) as notes:
                pid = notes.lease.pid
        with pool.acquire(Notes) as notes:
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(forebay.DiedError):
                notes.read()
        told = []
        while not told or told[-1].what != "death":
            event = events.next(timeout=5)
            assert event is not None
            told.append(event)
    leases = ["lease", "reset"]
    assert [event.what for event in told] == ["start", *leases, *leases, "lease", "death"]
    assert {event.service for event in told} == {"Notes"}
    assert {event.pid for event in told[1:]} == {pid}
    assert told[-1].cause == "signal"
    assert all(one.at <= other.at for one, other in itertools.pairwise(told))


def test_a_reader_waits_and_ends_with_the_pool() -> None:
    pool = forebay.ServicePool(max_size=1)
    heard: list[str] = []
    with pool.events() as events:

        def listen() -> None:
            heard.extend(event.what for event in events)

        listener = threading.Thread(target=listen)
        listener.start()
        with pool.acquire(Echo):
            pass
        assert eventually(lambda: heard == ["start", "lease", "release"])
        pool.close()
        listener.join(5)
        assert not listener.is_alive()


async def heard_on_a_loop() -> list[str]:
    async with forebay.ServicePool(max_size=1) as pool:
        with pool.events() as events:
            async with pool.acquire(Echo):
                pass
            heard = []
            async for event in events:
                heard.append(event.what)
                if event.what == "release":
                    break
            return heard
    return []


def test_events_on_an_event_loop() -> None:
    assert asyncio.run(heard_on_a_loop()) == ["start", "lease", "release"]


def test_nothing_is_kept_where_nobody_reads(pool_of: PoolOf) -> None:
    with pool_of(max_size=1) as pool:
        with pool.acquire(Echo):
            pass
        with pool.events() as events:
            assert list(events.taken()) == []


def test_every_change_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, logger="forebay.pool.events"),
        forebay.ServicePool(max_size=1, name="logged") as pool,
        pool.acquire(Echo) as echo,
    ):
        pid = echo.lease.pid
    told = [record.getMessage() for record in caplog.records]
    assert any(f"'logged': lease of Echo (process {pid})" in message for message in told)
    assert any("release of Echo" in message for message in told)


def test_the_next_event_is_awaited_on_a_loop() -> None:
    """An object entered by `async with` has the same methods, to await."""

    async def main() -> None:
        async with forebay.ServicePool(max_size=1) as pool, pool.events() as events:
            assert await events.next(timeout=0.01) is None
            async with pool.acquire(Echo):
                event = await events.next(timeout=20)
            assert event is not None
            assert event.what == "start"

    asyncio.run(main())
