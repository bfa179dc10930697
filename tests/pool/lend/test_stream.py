"""Streams of results on a lease, in both faces."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.errors import DeadlineError, DiedError, RemoteError, StaleError
from tests.pool.conftest import PoolOf
from tests.pool.lend.stream_services import ResetRows, Rows
from tests.pool.shared.lender import Lending


@pytest.fixture
def one() -> Iterator[forebay.ServicePool]:
    """A pool of one service, so that the next lease gets the same one where it can."""
    with forebay.ServicePool(max_size=1, name="one", reset_timeout=5) as made:
        yield made


def take(stream: Any, count: int) -> list[Any]:
    return list(itertools.islice(stream, count))


def test_a_generator_is_a_method_that_streams(one: forebay.ServicePool) -> None:
    """A leased service's generator is iterated like a local one."""
    with one.acquire(Rows) as rows:
        assert list(rows.count(100)) == list(range(100))
        assert list(rows.lease.stream("count", (50,), credit=2)) == list(range(50))
        assert list(rows.lease.stream("returned", kwargs={"stop": 5})) == list(range(5))
        seen = [(item, len(rows.logged())) for item in rows.count(3)]
        assert [item for item, _ in seen] == [0, 1, 2]


@pytest.mark.parametrize("service", [Rows, ResetRows])
def test_a_lease_that_ends_in_mid_stream_keeps_its_service(
    one: forebay.ServicePool, service: type[Rows]
) -> None:
    """The generator is closed, then the service is reset; the next lease finds it so."""
    pids = []
    for _ in range(5):
        with one.acquire(service) as rows:
            pids.append(rows.lease.pid)
            stream = rows.count()
            assert take(stream, 40) == list(range(40))
            left = rows.count()
            assert next(left) == 0
            left.close()
        with pytest.raises(StaleError):
            take(stream, 100)
    with one.acquire(service) as rows:
        pids.append(rows.lease.pid)
        round_ = ["closed", "closed", "reset"] if service is ResetRows else ["closed", "closed"]
        assert rows.logged() == round_ * 5
    assert len(set(pids)) == 1
    assert one.stats()["deaths"] == {}


def test_a_stream_that_hangs_costs_its_service_the_reset_deadline(pool_of: PoolOf) -> None:
    """A generator that cannot be closed does not reach the next lease."""
    with pool_of(max_size=1, reset_timeout=0.5) as pool:
        for service in (Rows, ResetRows):
            with pool.acquire(service) as rows:
                first = rows.lease.pid
                assert take(rows.hang_after(3), 3) == [0, 1, 2]
            with pool.acquire(service, timeout=10) as rows:
                assert rows.lease.pid != first
                assert list(rows.count(3)) == [0, 1, 2]


def test_errors_are_those_of_a_call(one: forebay.ServicePool) -> None:
    """What the method raises keeps the service; its death is told with its cause."""
    with one.acquire(Rows) as rows:
        pid = rows.lease.pid
        stream = rows.fail_after(3)
        assert take(stream, 3) == [0, 1, 2]
        with pytest.raises(ValueError, match="after 3") as raised:
            next(stream)
        assert isinstance(raised.value, RemoteError)
    with one.acquire(Rows) as rows:
        assert rows.lease.pid == pid
        with pytest.raises(DiedError) as died:
            list(rows.die_after(3))
        assert died.value.exit_code == 7
    with one.acquire(Rows) as rows:
        assert rows.lease.pid != pid


def test_a_deadline_ends_the_service(one: forebay.ServicePool) -> None:
    """As of a call: what ran out of time is not lent on."""
    with one.acquire(Rows) as rows:
        pid = rows.lease.pid
        with pytest.raises(DeadlineError):
            list(rows.lease.options(timeout=0.1).slow(0.01))
    with one.acquire(Rows) as rows:
        assert rows.lease.pid != pid


def test_the_awaited_face_streams_too(one: forebay.ServicePool) -> None:
    """A lease of an event loop gives async iterators, and ends them."""

    async def work() -> None:
        pids = []
        for _ in range(3):
            async with one.acquire(ResetRows) as rows:
                pids.append(rows.lease.pid)
                assert [item async for item in rows.count(100)] == list(range(100))
                stream = rows.lease.stream("count", credit=4)
                async with rows.count() as other:
                    assert await anext(other) == await anext(stream) == 0
                assert await anext(stream) == 1
            with pytest.raises(StaleError):
                async for _ in stream:
                    pass
        async with one.acquire(ResetRows) as rows:
            log = await rows.logged()
            assert log == ["closed", "closed", "closed", "reset"] * 3
            with pytest.raises(DiedError) as died:
                async for _ in rows.die_after(3):
                    pass
            assert died.value.exit_code == 7
        assert len(set(pids)) == 1

    asyncio.run(asyncio.wait_for(work(), 20))


def test_a_copy_is_made_between_two_items(one: forebay.ServicePool) -> None:
    """A fork in mid-stream leaves the stream to the original; the copy answers calls."""
    with one.acquire(Rows) as rows:
        stream = rows.count()
        assert next(stream) == 0
        with rows.lease.fork() as (copy,):
            assert copy.logged() == ["closed"], "its half of the generator is closed"
            assert take(stream, 30) == list(range(1, 31))
            assert rows.logged() == []


def test_streams_of_a_shared_pool(lending: Lending, path: Path) -> None:
    """A service of another program's pool streams, and is lent on after it."""
    with forebay.SharedPool(path) as pool:
        with pool.acquire(ResetRows) as rows:
            assert list(rows.count(100)) == list(range(100))
        with pool.acquire(ResetRows) as rows:
            assert next(rows.count()) == 0
        with pool.acquire(ResetRows) as rows:
            assert list(rows.count(5)) == list(range(5))
