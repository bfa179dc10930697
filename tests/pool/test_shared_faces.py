from __future__ import annotations

import asyncio
import threading

import pytest

import forebay
from tests.pool.soak_services import Shared


@pytest.mark.xfail(
    strict=False, reason="the channel of a shared service belongs to the loop that called first"
)
def test_a_thread_and_a_loop_share_a_service() -> None:
    """Who joins a service that is in use can call it, whichever face the others use."""
    with forebay.ServicePool(max_size=1) as pool:
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
