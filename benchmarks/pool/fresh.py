"""A new process of one's own and its first answer: ours forked when asked for, and a Ray actor.

Each is used for one call and never again; what it takes to end it is outside of the time.
Ray is started as its own guide advises for one machine, with as many CPUs as the machine has, so
that it may keep processes ready as it likes.
"""

from __future__ import annotations

import os
import time

from benchmarks import processes
from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.ray_cluster import running_ray
from benchmarks.stopwatch import Figures, time_each

START_TIMEOUT_S = 60.0


def forebay_services(services: int, warm_up: int) -> Figures:
    """A service that nobody had before, and its first call."""
    import forebay
    from benchmarks.services import Fresh

    seen: set[int] = set()
    with forebay.ServicePool() as pool:

        def first_answer() -> int:
            started = time.perf_counter_ns()
            with pool.acquire(Fresh, timeout=START_TIMEOUT_S) as service:
                pid, _ = service.birth()
                took = time.perf_counter_ns() - started
                process = os.pidfd_open(pid)
            processes.wait_for_end(process)
            if pid in seen:
                raise ValueError(f"process {pid} was lent twice")
            seen.add(pid)
            return took

        return time_each(first_answer, count=services, warm_up=warm_up)


class _Actor:
    def birth(self) -> int:
        return os.getpid()


def ray_actors(services: int, warm_up: int) -> Figures:
    """A new actor, and its first call."""
    with running_ray() as ray:
        actor_class = ray.remote(_Actor)

        def first_answer() -> int:
            started = time.perf_counter_ns()
            actor = actor_class.remote()
            pid = ray.get(actor.birth.remote())
            took = time.perf_counter_ns() - started
            process = os.pidfd_open(pid)
            ray.kill(actor)
            processes.wait_for_end(process)
            return took

        return time_each(first_answer, count=services, warm_up=warm_up)


def _contestant(name: str, function: str, environment: str, full: int, quick: int) -> Contestant:
    options = {"services": full, "warm_up": 2}
    return Contestant(
        name, f"benchmarks.pool.fresh:{function}", environment, options, {"services": quick}
    )


FOREBAY = _contestant("forebay, fresh service", "forebay_services", OWN, 100, 40)
RAY = _contestant("Ray, fresh actor", "ray_actors", "main", 20, 8)

CLAIMS = [Claim("pool.fresh.vs_ray_actor", FOREBAY, RAY, "p50", "ms")]
