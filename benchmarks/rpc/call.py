"""Calls to a warm service: 100 bytes each way, and a 10 MB array as argument.

Every contestant has its client in one fresh process and its service in another, neither pinned to
a core, the same payload, the same number of calls to warm up.
The array's first byte changes with every call and the answer is checked, so nothing can be cached;
a service reads one byte of every page.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.ray_cluster import running_ray
from benchmarks.stopwatch import Figures, time_awaited_calls, time_calls

PAYLOAD = bytes(100)
ARRAY_BYTES = 10_000_000
PAGE_BYTES = 4096
READY_TIMEOUT_S = 30.0
POLL_S = 0.01
MS = 1_000_000  # nanoseconds


def changing_array(touch: Any, *, calls: int, warm_up: int) -> Figures:
    """Time `touch(array)` in milliseconds, with another first byte in every call."""
    import numpy as np

    array = np.ones(ARRAY_BYTES, dtype=np.uint8)
    others = len(array[::PAGE_BYTES]) - 1

    def call(number: int) -> bool:
        array[0] = number % 256
        return bool(touch(array) == others + number % 256)

    return time_calls(call, calls=calls, warm_up=warm_up, unit_ns=MS)


def touched(array: Any) -> int:
    """Sum one byte of every page."""
    return int(array[::PAGE_BYTES].sum(dtype="int64"))


# --- ours -------------------------------------------------------------------------------------


def forebay_calls(calls: int, warm_up: int, per_second: int = 0) -> Figures:
    """A leased service, blocking face; back to back, or so many calls a second."""
    import forebay
    from benchmarks.services import Echo

    with forebay.acquire(Echo, timeout=READY_TIMEOUT_S) as service:
        return time_calls(
            lambda _: bool(service.echo(PAYLOAD) == PAYLOAD),
            calls=calls,
            warm_up=warm_up,
            per_second=per_second,
        )


def forebay_array(calls: int, warm_up: int) -> Figures:
    """The same service, with an array as argument."""
    import forebay
    from benchmarks.services import Echo

    with forebay.acquire(Echo, timeout=READY_TIMEOUT_S) as service:
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


def _rpyc_serve(path: str) -> None:
    import rpyc
    from rpyc.utils.server import ThreadedServer

    class Echo(rpyc.Service):  # type: ignore[misc]  # RPyC has no types
        def exposed_echo(self, data: bytes) -> bytes:
            return data

    ThreadedServer(Echo, socket_path=path).start()


def rpyc_connect(dial: Callable[[], Any]) -> Any:
    """Connect as soon as the server listens; it has no signal of its own for that."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            return dial()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def rpyc_calls(calls: int, warm_up: int) -> Figures:
    """A threaded server on a Unix socket, which it is faster on than over TCP."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rpyc")
        context.Process(target=_rpyc_serve, args=(path,), daemon=True).start()
        import rpyc

        connection = rpyc_connect(lambda: rpyc.utils.factory.unix_connect(path))
        echo = connection.root.echo  # looked up once: the attribute alone costs a round trip
        return time_calls(lambda _: bool(echo(PAYLOAD) == PAYLOAD), calls=calls, warm_up=warm_up)


# --- xoscar -----------------------------------------------------------------------------------


def xoscar_calls(calls: int, warm_up: int) -> Figures:
    """An actor in a sub-pool, which is a process of its own; called from the loop that it needs."""
    import asyncio

    return asyncio.run(_xoscar_calls(calls, warm_up))


async def _xoscar_calls(calls: int, warm_up: int) -> Figures:
    import xoscar

    from benchmarks.rpc.xoscar_actor import Echo

    pool = await xoscar.create_actor_pool("127.0.0.1:0", n_process=1)
    async with pool:
        actor = await xoscar.create_actor(
            Echo,
            address=pool.external_address,
            uid="echo",
            allocate_strategy=xoscar.allocate_strategy.RandomSubPool(),
        )
        if actor.address == pool.external_address:
            raise ValueError(f"the actor is in the caller's process: {actor.address}")

        async def call(_: int) -> bool:
            return bool(await actor.echo(PAYLOAD) == PAYLOAD)

        return await time_awaited_calls(call, calls=calls, warm_up=warm_up)


# --- Ray --------------------------------------------------------------------------------------


class _Actor(_Echo):
    def touch(self, array: Any) -> int:
        return touched(array)


def ray_calls(calls: int, warm_up: int) -> Figures:
    """An actor, which Ray keeps in a process of its own."""
    with running_ray() as ray:
        echo = ray.remote(_Actor).remote().echo
        return time_calls(
            lambda _: bool(ray.get(echo.remote(PAYLOAD)) == PAYLOAD), calls=calls, warm_up=warm_up
        )


def ray_array(calls: int, warm_up: int) -> Figures:
    """The same actor, with an array as argument, which travels through Ray's store."""
    with running_ray() as ray:
        touch = ray.remote(_Actor).remote().touch
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

CLAIMS = [
    Claim("rpc.call.vs_pipe", FOREBAY_CALLS, PIPE_CALLS, "mean", "us"),
    Claim("rpc.call.vs_rpyc", FOREBAY_CALLS, RPYC_CALLS, "mean", "us"),
    Claim("rpc.call.vs_manager", FOREBAY_CALLS, MANAGER_CALLS, "mean", "us"),
    Claim("rpc.call.vs_xoscar", FOREBAY_CALLS, XOSCAR_CALLS, "mean", "us"),
    Claim("rpc.call.vs_ray", FOREBAY_CALLS, RAY_CALLS, "mean", "us"),
    Claim("rpc.array_10mb.vs_pipe", FOREBAY_ARRAY, PIPE_ARRAY, "mean", "ms"),
    Claim("rpc.array_10mb.vs_ray", FOREBAY_ARRAY, RAY_ARRAY, "mean", "ms"),
]
