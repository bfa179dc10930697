"""One warm object in a process of its own, as each system keeps one: what is called, or at rest.

Peers' packages are imported where they are used, since each round runs in the environment of one.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.ray_cluster import running_ray

PAGE_BYTES = 4096
READY_TIMEOUT_S = 30.0
POLL_S = 0.001


def touched(array: Any) -> int:
    """Sum one byte of every page."""
    return int(array[::PAGE_BYTES].sum(dtype="int64"))


@contextmanager
def forebay_echo() -> Iterator[Any]:
    """A leased service, blocking face."""
    import forebay
    from benchmarks.services import Echo

    with forebay.acquire(Echo, timeout=READY_TIMEOUT_S) as service:
        yield service


# --- RPyC -------------------------------------------------------------------------------------


def rpyc_serve(path: str) -> None:
    """A threaded server on a Unix socket, which it is faster on than over TCP; never returns."""
    import os

    import rpyc
    from rpyc.utils.server import ThreadedServer

    class Echo(rpyc.Service):  # type: ignore[misc]  # RPyC has no types
        def exposed_echo(self, data: bytes) -> bytes:
            return data

        def exposed_touch(self, data: bytes) -> int:
            import numpy

            return touched(numpy.frombuffer(data, dtype=numpy.uint8))

        def exposed_birth(self) -> int:
            return os.getpid()

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


@contextmanager
def rpyc_echo() -> Iterator[Any]:
    """The root of a connection to a server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "rpyc")
        process = context.Process(target=rpyc_serve, args=(path,), daemon=True)
        process.start()
        import rpyc

        connection = rpyc_connect(lambda: rpyc.utils.factory.unix_connect(path))
        try:
            yield connection.root
        finally:
            connection.close()
            process.kill()
            process.join()


# --- xoscar -----------------------------------------------------------------------------------


@asynccontextmanager
async def xoscar_echo() -> AsyncIterator[Any]:
    """An actor in a sub-pool, which is a process of its own."""
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
        yield actor


# --- Ray --------------------------------------------------------------------------------------


class Actor:
    """What Ray and Dask make an actor of."""

    def echo(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data

    def touch(self, array: Any) -> int:
        """Read one byte of every page."""
        return touched(array)


@contextmanager
def ray_echo() -> Iterator[tuple[Any, Any]]:
    """Ray itself, and an actor, which it keeps in a process of its own."""
    with running_ray() as ray:
        yield ray, ray.remote(Actor).remote()
