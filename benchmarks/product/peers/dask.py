"""An actor of Dask, on a LocalCluster with one worker in a process of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import processes
from benchmarks.product.idle import at_rest
from benchmarks.rpc.call import PAYLOAD, changing_array
from benchmarks.rpc.served import Actor
from benchmarks.stopwatch import Figures, time_calls, time_each


class _Born(Actor):
    def birth(self) -> int:
        return os.getpid()


@contextmanager
def _cluster(workers: int) -> Iterator[tuple[Any, Any]]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield cluster, client


@contextmanager
def _echo() -> Iterator[Any]:
    with _cluster(1) as (_, client):
        yield client.submit(Actor, actor=True).result()


def calls(calls: int, warm_up: int) -> Figures:
    """One call after the other."""
    with _echo() as actor:
        return time_calls(
            lambda _: bool(actor.echo(PAYLOAD).result() == PAYLOAD), calls=calls, warm_up=warm_up
        )


def array(calls: int, warm_up: int) -> Figures:
    """An array as argument."""
    with _echo() as actor:
        return changing_array(
            lambda array: actor.touch(array).result(), calls=calls, warm_up=warm_up
        )


def idle() -> Figures:
    """At rest, after a call."""
    with _echo() as actor:
        assert actor.echo(PAYLOAD).result() == PAYLOAD
        return at_rest()


def fresh(services: int, warm_up: int) -> Figures:
    """A new worker, an actor on it, and its first call."""
    with _cluster(0) as (cluster, client):

        def first_answer() -> int:
            started = time.perf_counter_ns()
            cluster.scale(1)
            actor = client.submit(_Born, actor=True, pure=False).result()
            pid = actor.birth().result()
            took = time.perf_counter_ns() - started
            process = os.pidfd_open(pid)
            del actor
            cluster.scale(0)
            processes.wait_for_end(process)
            return took

        return time_each(first_answer, count=services, warm_up=warm_up)
