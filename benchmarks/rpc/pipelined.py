"""A thousand calls in flight from one client: wave after wave, each awaited as a whole.

100 bytes each way, every answer checked; a wave's time is divided by its calls.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.rpc.call import PAYLOAD
from benchmarks.rpc.served import READY_TIMEOUT_S, ray_echo, rpyc_connect
from benchmarks.stopwatch import Figures, time_awaited_calls, time_calls

IN_FLIGHT = 1_000


def per_call(waves: Figures) -> Figures:
    """The figures of waves, in calls per second where they are rates and per call otherwise."""
    shared = {name: waves[name] / IN_FLIGHT for name in ("mean", "p50", "p99", "p99_9", "cpu")}
    return waves | shared | {"calls_per_s": 1e6 / shared["p50"]}


def _right(answers: Sequence[bytes]) -> bool:
    return len(answers) == IN_FLIGHT and all(answer == PAYLOAD for answer in answers)


def forebay_waves(waves: int, warm_up: int) -> Figures:
    """A leased service, asyncio face, on the stock loop."""
    return asyncio.run(_forebay_waves(waves, warm_up))


async def _forebay_waves(waves: int, warm_up: int) -> Figures:
    import forebay
    from benchmarks.services import Echo

    async with forebay.acquire(Echo, timeout=READY_TIMEOUT_S) as service:

        async def wave(_: int) -> bool:
            calls = (service.echo(PAYLOAD) for _ in range(IN_FLIGHT))
            return _right(await asyncio.gather(*calls))

        return per_call(await time_awaited_calls(wave, calls=waves, warm_up=warm_up))


def _rpyc_serve(pipe: Connection) -> None:
    import rpyc
    from rpyc.utils.server import ThreadedServer

    class Echo(rpyc.Service):  # type: ignore[misc]  # RPyC has no types
        def exposed_echo(self, data: bytes) -> bytes:
            return data

    server = ThreadedServer(Echo, hostname="127.0.0.1", port=0)
    pipe.send(server.port)
    server.start()


def rpyc_waves(waves: int, warm_up: int) -> Figures:
    """Asynchronous requests whose answers RPyC's own thread takes in.

    Over TCP: on a Unix socket both sides wait for each other with so much in flight.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=_rpyc_serve, args=(theirs,), daemon=True).start()
    import rpyc

    port = ours.recv()
    connection = rpyc_connect(lambda: rpyc.connect("127.0.0.1", port))
    request = rpyc.async_(connection.root.echo)
    taker = rpyc.BgServingThread(connection)

    def wave(_: int) -> bool:
        answers = [request(PAYLOAD) for _ in range(IN_FLIGHT)]
        return _right([answer.value for answer in answers])

    figures = per_call(time_calls(wave, calls=waves, warm_up=warm_up))
    taker.stop()
    return figures


def ray_waves(waves: int, warm_up: int) -> Figures:
    """Calls of one actor, and one `ray.get` for their answers."""
    with ray_echo() as (ray, actor):
        echo: Callable[..., Any] = actor.echo.remote

        def wave(_: int) -> bool:
            return _right(ray.get([echo(PAYLOAD) for _ in range(IN_FLIGHT)]))

        return per_call(time_calls(wave, calls=waves, warm_up=warm_up))


def _contestant(name: str, function: str, environment: str, waves: int, quick: int) -> Contestant:
    options = {"waves": waves, "warm_up": 3}
    return Contestant(
        name, f"benchmarks.rpc.pipelined:{function}", environment, options, {"waves": quick}
    )


FOREBAY = _contestant("forebay, 1,000 in flight", "forebay_waves", OWN, 100, 30)
RPYC = _contestant("RPyC, 1,000 in flight", "rpyc_waves", "main", 30, 10)
RAY = _contestant("Ray, 1,000 in flight", "ray_waves", "main", 15, 6)

CLAIMS = [
    Claim("rpc.pipelined.vs_rpyc", FOREBAY, RPYC, "calls_per_s", "calls/s", higher_is_better=True),
    Claim("rpc.pipelined.vs_ray", FOREBAY, RAY, "calls_per_s", "calls/s", higher_is_better=True),
]
