from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.pool.faults.soak_services import Shared


async def hold(pool: Any, entered: threading.Event, called: threading.Event) -> int:
    """Hold a service on a loop while another face is served; its process."""
    async with pool.acquire(Shared.spec(6)) as shared:
        await shared.enter("loop")
        entered.set()
        await asyncio.to_thread(called.wait, 10)
        assert await shared.leave("loop") == "loop"
        return int(shared.lease.pid)


def test_a_thread_and_a_loop_share_different_services(pool: Any) -> None:
    """A connection in use belongs to its loop: who joins from a thread gets another service."""
    entered, called = threading.Event(), threading.Event()
    thread = threading.Thread(target=asyncio.run, args=(hold(pool, entered, called),))
    thread.start()
    try:
        assert entered.wait(10)
        with pool.acquire(Shared.spec(6), timeout=5) as shared:
            assert shared.add(1) == 7
    finally:
        called.set()
        thread.join()


def test_two_loops_share_different_services(pool: Any) -> None:
    """Neither could wait for an answer that the other one's loop reads."""
    entered, called = threading.Event(), threading.Event()
    pids: list[int] = []
    first = threading.Thread(target=lambda: pids.append(asyncio.run(hold(pool, entered, called))))
    first.start()

    async def other() -> int:
        async with pool.acquire(Shared.spec(6), timeout=5) as one:
            async with pool.acquire(Shared.spec(6), timeout=5) as two:
                assert one.lease.pid == two.lease.pid
            assert await one.add(1) == 7
            return int(one.lease.pid)

    try:
        assert entered.wait(10)
        pids.append(asyncio.run(other()))
    finally:
        called.set()
        first.join()
    assert len(set(pids)) == 2


def test_what_a_loop_gave_back_serves_threads_and_other_loops(pool: Any) -> None:
    """A service would stay warm for a loop that is gone, and each new loop would start another."""

    async def once() -> int:
        async with pool.acquire(Shared.spec(6), timeout=10) as shared:
            return int(shared.lease.pid)

    pids = {asyncio.run(once()), asyncio.run(once())}
    with pool.acquire(Shared.spec(6), timeout=10) as shared:
        pids.add(shared.lease.pid)
    assert len(pids) == 1
