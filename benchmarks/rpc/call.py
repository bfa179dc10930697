"""Calls to a warm service: 100 bytes each way, and a 10 MB array as argument.

Every contestant has its client in one fresh process and its service in another, neither pinned to
a core, the same payload, the same number of calls to warm up.
The array's first byte changes with every call and the answer is checked, so nothing can be cached;
a service reads one byte of every page.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseManager
from typing import Any

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.rpc.served import (
    forebay_echo,
    ray_echo,
    rpyc_echo,
    touched,
    xoscar_echo,
)
from benchmarks.stopwatch import Figures, time_awaited_calls, time_calls

PAYLOAD = bytes(100)
ARRAY_BYTES = 10_000_000
MS = 1_000_000  # nanoseconds


class Changing:
    """An array of which every call gets another content."""

    def __init__(self) -> None:
        import numpy as np

        self.array = np.ones(ARRAY_BYTES, dtype=np.uint8)
        self._others = touched(self.array) - 1

    def change(self, number: int) -> Any:
        """The array, with its first byte as it is in this call."""
        self.array[0] = number % 256
        return self.array

    def is_sum(self, answer: Any, number: int) -> bool:
        """Whether a service that got it read every page of it."""
        return bool(answer == self._others + number % 256)


def changing_array(touch: Any, *, calls: int, warm_up: int) -> Figures:
    """Time `touch(array)` in milliseconds, with another first byte in every call."""
    array = Changing()

    def call(number: int) -> bool:
        return array.is_sum(touch(array.change(number)), number)

    return time_calls(call, calls=calls, warm_up=warm_up, unit_ns=MS)


# --- ours -------------------------------------------------------------------------------------


def forebay_calls(calls: int, warm_up: int, per_second: int = 0) -> Figures:
    """A leased service, blocking face; back to back, or so many calls a second."""
    with forebay_echo() as service:
        return time_calls(
            lambda _: bool(service.echo(PAYLOAD) == PAYLOAD),
            calls=calls,
            warm_up=warm_up,
            per_second=per_second,
        )


def forebay_array(calls: int, warm_up: int) -> Figures:
    """The same service, with an array as argument."""
    with forebay_echo() as service:
        return changing_array(service.touch, calls=calls, warm_up=warm_up)


# --- multiprocessing.Pipe ---------------------------------------------------------------------


def _pipe_echo(pipe: Connection) -> None:
    while True:
        pipe.send_bytes(pipe.recv_bytes())


def _pipe_touch(pipe: Connection) -> None:
    while True:
        pipe.send(touched(pipe.recv()))


def pipe_calls(calls: int, warm_up: int, per_second: int = 0) -> Figures:
    """Bare bytes, no pickle: the least that two Python processes need; paced as ours."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=_pipe_echo, args=(theirs,), daemon=True).start()

    def call(_: int) -> bool:
        ours.send_bytes(PAYLOAD)
        return ours.recv_bytes() == PAYLOAD

    return time_calls(call, calls=calls, warm_up=warm_up, per_second=per_second)


def pipe_array(calls: int, warm_up: int) -> Figures:
    """An array as a pipe takes one: `send`, which pickles."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=_pipe_touch, args=(theirs,), daemon=True).start()

    def touch(array: Any) -> Any:
        ours.send(array)
        return ours.recv()

    return changing_array(touch, calls=calls, warm_up=warm_up)


# --- multiprocessing.managers -----------------------------------------------------------------


class _Echo:
    def echo(self, data: bytes) -> bytes:
        return data


class _Manager(BaseManager):
    pass


_Manager.register("Echo", _Echo)


def manager_calls(calls: int, warm_up: int) -> Figures:
    """An object behind a manager in its own process."""
    with _Manager(ctx=multiprocessing.get_context("spawn")) as manager:
        proxy: Any = manager.Echo()  # type: ignore[attr-defined]  # registered above
        return time_calls(
            lambda _: bool(proxy.echo(PAYLOAD) == PAYLOAD), calls=calls, warm_up=warm_up
        )


# --- RPyC -------------------------------------------------------------------------------------


def rpyc_calls(calls: int, warm_up: int) -> Figures:
    """A threaded server on a Unix socket."""
    with rpyc_echo() as root:
        echo = root.echo  # looked up once: the attribute alone costs a round trip
        return time_calls(lambda _: bool(echo(PAYLOAD) == PAYLOAD), calls=calls, warm_up=warm_up)


def rpyc_array(calls: int, warm_up: int) -> Figures:
    """The same server, with the array's bytes: of an array it would pass a reference."""
    with rpyc_echo() as root:
        touch = root.touch
        return changing_array(lambda array: touch(array.tobytes()), calls=calls, warm_up=warm_up)


# --- xoscar -----------------------------------------------------------------------------------


def xoscar_calls(calls: int, warm_up: int) -> Figures:
    """An actor in a sub-pool, called from the loop that it needs."""
    return asyncio.run(_xoscar_calls(calls, warm_up))


async def _xoscar_calls(calls: int, warm_up: int) -> Figures:
    async with xoscar_echo() as actor:

        async def call(_: int) -> bool:
            return bool(await actor.echo(PAYLOAD) == PAYLOAD)

        return await time_awaited_calls(call, calls=calls, warm_up=warm_up)


def xoscar_array(calls: int, warm_up: int) -> Figures:
    """The same actor, with an array as argument."""
    return asyncio.run(_xoscar_array(calls, warm_up))


async def _xoscar_array(calls: int, warm_up: int) -> Figures:
    array = Changing()
    async with xoscar_echo() as actor:

        async def call(number: int) -> bool:
            return array.is_sum(await actor.touch(array.change(number)), number)

        return await time_awaited_calls(call, calls=calls, warm_up=warm_up, unit_ns=MS)


# --- Ray --------------------------------------------------------------------------------------


def ray_calls(calls: int, warm_up: int) -> Figures:
    """An actor."""
    with ray_echo() as (ray, actor):
        echo = actor.echo
        return time_calls(
            lambda _: bool(ray.get(echo.remote(PAYLOAD)) == PAYLOAD), calls=calls, warm_up=warm_up
        )


def ray_array(calls: int, warm_up: int) -> Figures:
    """The same actor, with an array as argument, which travels through Ray's store."""
    with ray_echo() as (ray, actor):
        touch = actor.touch
        return changing_array(
            lambda array: ray.get(touch.remote(array)), calls=calls, warm_up=warm_up
        )


CALLS = {"calls": 20_000, "warm_up": 500}
CALLS_QUICK = {"calls": 5_000}
# Slower ones: as many calls as take about as long.
CALLS_SLOW = {"calls": 5_000, "warm_up": 500}
CALLS_SLOW_QUICK = {"calls": 1_000}
ARRAYS = {"calls": 400, "warm_up": 20}
ARRAYS_QUICK = {"calls": 150}
ARRAYS_SLOW = {"calls": 60, "warm_up": 5}
ARRAYS_SLOW_QUICK = {"calls": 20}


def _calls(name: str, function: str, environment: str) -> Contestant:
    return Contestant(name, f"benchmarks.rpc.call:{function}", environment, CALLS, CALLS_QUICK)


def _arrays(name: str, function: str, environment: str) -> Contestant:
    return Contestant(name, f"benchmarks.rpc.call:{function}", environment, ARRAYS, ARRAYS_QUICK)


FOREBAY_CALLS = _calls("forebay call", "forebay_calls", OWN)
FOREBAY_ARRAY = _arrays("forebay 10 MB", "forebay_array", OWN)
PIPE_CALLS = _calls("Pipe call", "pipe_calls", "main")
PIPE_ARRAY = _arrays("Pipe 10 MB", "pipe_array", "main")
MANAGER_CALLS = _calls("manager call", "manager_calls", "main")
RPYC_CALLS = _calls("RPyC call", "rpyc_calls", "main")
XOSCAR_CALLS = Contestant(
    "xoscar call", "benchmarks.rpc.call:xoscar_calls", "main", CALLS_SLOW, CALLS_SLOW_QUICK
)
RAY_CALLS = Contestant(
    "Ray call", "benchmarks.rpc.call:ray_calls", "main", CALLS_SLOW, CALLS_SLOW_QUICK
)
RAY_ARRAY = _arrays("Ray 10 MB", "ray_array", "main")
# Of these no row of rpc asks for arrays; the rows of product show them.
RPYC_ARRAY = Contestant(
    "RPyC 10 MB", "benchmarks.rpc.call:rpyc_array", "main", ARRAYS_SLOW, ARRAYS_SLOW_QUICK
)
XOSCAR_ARRAY = Contestant(
    "xoscar 10 MB", "benchmarks.rpc.call:xoscar_array", "main", ARRAYS_SLOW, ARRAYS_SLOW_QUICK
)

CLAIMS = [
    Claim("rpc.call.vs_pipe", FOREBAY_CALLS, PIPE_CALLS, "mean", "us"),
    Claim("rpc.call.vs_rpyc", FOREBAY_CALLS, RPYC_CALLS, "mean", "us"),
    Claim("rpc.call.vs_manager", FOREBAY_CALLS, MANAGER_CALLS, "mean", "us"),
    Claim("rpc.call.vs_xoscar", FOREBAY_CALLS, XOSCAR_CALLS, "mean", "us"),
    Claim("rpc.call.vs_ray", FOREBAY_CALLS, RAY_CALLS, "mean", "us"),
    Claim("rpc.array_10mb.vs_pipe", FOREBAY_ARRAY, PIPE_ARRAY, "mean", "ms"),
    Claim("rpc.array_10mb.vs_ray", FOREBAY_ARRAY, RAY_ARRAY, "mean", "ms"),
]
