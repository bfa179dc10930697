"""A thousand results as one stream, against as many calls in flight from the same client.

100 bytes each, every item checked; a stream's time is divided by its items.
"""

from __future__ import annotations

import asyncio

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.rpc.call import PAYLOAD
from benchmarks.rpc.pipelined import FOREBAY, IN_FLIGHT, per_call
from benchmarks.rpc.served import READY_TIMEOUT_S
from benchmarks.stopwatch import Figures, time_awaited_calls, time_calls


def streamed(streams: int, warm_up: int) -> Figures:
    """A leased service, blocking face."""
    import forebay
    from benchmarks.services import Echo

    with forebay.acquire(Echo, timeout=READY_TIMEOUT_S) as service:

        def stream(_: int) -> bool:
            return sum(item == PAYLOAD for item in service.repeat(PAYLOAD, IN_FLIGHT)) == IN_FLIGHT

        return per_call(time_calls(stream, calls=streams, warm_up=warm_up))


def streamed_on_loop(streams: int, warm_up: int) -> Figures:
    """A leased service, asyncio face, on the stock loop."""
    return asyncio.run(_streamed_on_loop(streams, warm_up))


async def _streamed_on_loop(streams: int, warm_up: int) -> Figures:
    import forebay
    from benchmarks.services import Echo

    async with forebay.acquire(Echo, timeout=READY_TIMEOUT_S) as service:

        async def stream(_: int) -> bool:
            right = 0
            async for item in service.repeat(PAYLOAD, IN_FLIGHT):
                right += item == PAYLOAD
            return right == IN_FLIGHT

        return per_call(await time_awaited_calls(stream, calls=streams, warm_up=warm_up))


def _contestant(name: str, function: str) -> Contestant:
    options = {"streams": 200, "warm_up": 3}
    return Contestant(name, f"benchmarks.rpc.stream:{function}", OWN, options, {"streams": 60})


BLOCKING = _contestant("forebay, a stream in a thread", "streamed")
AWAITED = _contestant("forebay, a stream on a loop", "streamed_on_loop")

CLAIMS = [
    Claim(name, stream, FOREBAY, "calls_per_s", "items/s", higher_is_better=True)
    for name, stream in (
        ("rpc.stream.vs_pipelined", BLOCKING),
        ("rpc.stream.awaited.vs_pipelined", AWAITED),
    )
]
