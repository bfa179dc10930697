"""A new process of one's own and its first answer, of systems that no row of the pool compares.

As there, each is used for one call, and what it takes to end it is outside of the time.
"""

from __future__ import annotations

import asyncio
import os
import time

from benchmarks import processes
from benchmarks.rpc.served import rpyc_echo
from benchmarks.stopwatch import MS, Figures, summary, time_each


def rpyc_servers(services: int, warm_up: int) -> Figures:
    """A new process with a threaded server, and its first call."""

    def first_answer() -> int:
        started = time.perf_counter_ns()
        with rpyc_echo() as root:
            pid = root.birth()
            took = time.perf_counter_ns() - started
            if pid == os.getpid():
                raise ValueError("the server is in the caller's process")
        return took

    return time_each(first_answer, count=services, warm_up=warm_up)


def xoscar_sub_pools(services: int, warm_up: int) -> Figures:
    """A new sub-pool, an actor in it, and its first call."""
    return asyncio.run(_xoscar_sub_pools(services, warm_up))


async def _xoscar_sub_pools(services: int, warm_up: int) -> Figures:
    import xoscar

    from benchmarks.rpc.xoscar_actor import Echo

    samples = []
    pool = await xoscar.create_actor_pool("127.0.0.1:0", n_process=0)
    async with pool:
        for number in range(warm_up + services):
            started = time.perf_counter_ns()
            address = await pool.append_sub_pool()
            actor = await xoscar.create_actor(Echo, address=address, uid=f"echo-{number}")
            pid = await actor.birth()
            took = time.perf_counter_ns() - started
            process = os.pidfd_open(pid)
            await pool.remove_sub_pool(address, force=True)
            processes.wait_for_end(process)
            if number >= warm_up:
                samples.append(took)
    return summary(samples, unit_ns=MS)
