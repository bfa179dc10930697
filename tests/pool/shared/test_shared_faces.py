from __future__ import annotations

import asyncio
import threading

import forebay
from tests.pool.faults.soak_services import Shared


def test_a_thread_and_a_loop_share_different_services() -> None:
    """A connection in use belongs to its loop: who joins from a thread gets another service."""
    with forebay.ServicePool(max_size=2) as pool:
        entered, called = threading.Event(), threading.Event()

        async def lease() -> None:
            async with pool.acquire(Shared.spec(6)) as shared:
                await shared.enter("loop")
                entered.set()
                await asyncio.to_thread(called.wait, 10)
                assert await shared.leave("loop") == "loop"

        thread = threading.Thread(target=asyncio.run, args=(lease(),))
        thread.start()
        try:
            assert entered.wait(10)
            with pool.acquire(Shared.spec(6), timeout=5) as shared:
                assert shared.add(1) == 7
        finally:
            called.set()
            thread.join()
