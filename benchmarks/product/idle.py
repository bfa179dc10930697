"""What one warm object takes at rest: proportional set size of its client and all below it.

After a first call everything rests for `REST_S`; then the process of the contestant and all its
descendants are counted.
A page that several processes share counts for each of them in parts; the harness's own interpreter
has its part of the pages of Python itself, of every contestant's alike.
"""

from __future__ import annotations

import time

from benchmarks import processes
from benchmarks.rpc.served import forebay_echo, ray_echo, rpyc_echo, xoscar_echo
from benchmarks.stopwatch import Figures

REST_S = 2.0
PAYLOAD = bytes(100)


def at_rest() -> Figures:
    """Memory of this process and all below it, after a rest, and how many they are."""
    time.sleep(REST_S)
    pids = processes.tree()
    return {"memory_mb": processes.memory_bytes(pids) / 1e6, "processes": len(pids)}


def _check(answer: bytes) -> None:
    if answer != PAYLOAD:
        raise ValueError(f"the answer is {answer!r}")


def forebay() -> Figures:
    """A leased service, with the keeper and the template that it was forked from."""
    with forebay_echo() as service:
        _check(service.echo(PAYLOAD))
        return at_rest()


def ray() -> Figures:
    """An actor, with the processes that Ray starts for one machine."""
    with ray_echo() as (ray, actor):
        _check(ray.get(actor.echo.remote(PAYLOAD)))
        return at_rest()


def rpyc() -> Figures:
    """A threaded server."""
    with rpyc_echo() as root:
        _check(root.echo(PAYLOAD))
        return at_rest()


def xoscar() -> Figures:
    """An actor in a sub-pool."""
    import asyncio

    return asyncio.run(_xoscar())


async def _xoscar() -> Figures:
    async with xoscar_echo() as actor:
        _check(await actor.echo(PAYLOAD))
        return at_rest()
