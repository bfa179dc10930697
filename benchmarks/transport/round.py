"""One round of a contestant of the transport benchmarks, in requests per second.

Each function here is run by the harness in a process of its own, which forks the server and the
clients and measures nothing itself but their CPU time and memory.
The figures of a message are named `message/figure`: "1e3/rate" is requests per second with frames
of 1,000 bytes, "1e3/p50" the median of their durations in microseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from benchmarks import processes
from benchmarks.stopwatch import Figures, summary
from benchmarks.transport.hog import HOLD_S, Hog
from benchmarks.transport.message import Shape
from benchmarks.transport.processes import Child, Children, call, serve
from benchmarks.transport.side import Link, side
from benchmarks.transport.work import BURST, answering, echo, exchange, gather, pour, swallow

US = 1_000  # nanoseconds
GATHERED = 10
FREE_S = 0.2  # the speed of a hog beside an idle server is taken over so long
Reply = tuple[list[int], float]  # durations in nanoseconds, and requests per second
Work = Callable[[list[Link], Shape, float], Awaitable[Reply]]


def shapes(wanted: Iterable[str]) -> list[str]:
    """The messages of which figures are wanted, in their order."""
    return list(dict.fromkeys(name.partition("/")[0] for name in wanted))


async def exchanges(links: list[Link], shape: Shape, seconds: float) -> Reply:
    """Echoes on all links at once; the durations, and how many were answered in a second."""
    started = time.perf_counter()
    series = await asyncio.gather(*(exchange(link, shape, seconds) for link in links))
    elapsed = time.perf_counter() - started
    samples = [sample for one in series for sample in one]
    return samples, len(samples) / elapsed


async def gathers(links: list[Link], shape: Shape, seconds: float) -> Reply:
    """The same for requests to all at once, whose durations are those of the slowest."""
    started = time.perf_counter()
    samples = await gather(links, shape, seconds)
    return samples, len(samples) * len(links) / (time.perf_counter() - started)


async def streams(links: list[Link], shape: Shape, seconds: float) -> Reply:
    """The same for messages one way; a duration is that of a whole burst."""
    (link,) = links
    started = time.perf_counter()
    samples = await pour(link, seconds)
    return samples, len(samples) * BURST / (time.perf_counter() - started)


def measure(
    children: Children,
    clients: Sequence[Child],
    work: Work,
    name: str,
    *,
    seconds: float,
    warm_up_s: float,
) -> Figures:
    """Have all clients do the work at once; the figures of the message of this name.

    CPU and memory are those of servers and clients together, CPU in microseconds per request.
    """
    shape, pids = Shape.parse(name), children.pids()

    def together(for_s: float) -> list[Reply]:
        for client in clients:
            client.order(work, shape, for_s)
        return [client.reply() for client in clients]

    together(warm_up_s)
    cpu_before = processes.cpu_ns(pids)
    replies = together(seconds)
    cpu = processes.cpu_ns(pids) - cpu_before
    durations = summary([sample for samples, _ in replies for sample in samples], unit_ns=US)
    rate = sum(rate for _, rate in replies)
    return {
        f"{name}/rate": rate,
        f"{name}/p50": durations["p50"],
        f"{name}/p99": durations["p99"],
        f"{name}/cpu": cpu / US / (rate * seconds),
        f"{name}/memory_mb": processes.memory_bytes(pids) / 1e6,
    }


def echoes(
    *,
    wanted: list[str],
    name: str,
    clients: int,
    connections: int,
    seconds: float,
    warm_up_s: float,
    hog: str = "",
    hold_s: float = HOLD_S,
    release_s: float = 0.0,
    **options: Any,
) -> Figures:
    """Echoes of every message in `wanted`, from so many processes with so many connections each.

    `hog` says where a thread spins: "inside" the server, "outside" in a process of its own.
    `kept` is then the share of its speed that it keeps, compared with an idle server.
    """
    contestant = side(name, options)
    spinner = Hog(hold_s, release_s) if hog else None
    figures: Figures = {}
    with Children() as children:
        inside = spinner.start_thread if spinner and hog == "inside" else nothing
        address = children.start(serve, contestant, echo, inside).reply()
        if spinner and hog == "outside":
            children.start(spinner.serve)
        free = spinner.free_speed(FREE_S) if spinner else 0.0
        dialled = [address] * connections
        callers = [children.start(call, contestant, dialled) for _ in range(clients)]
        for caller in callers:
            caller.reply()
        times = {"seconds": seconds, "warm_up_s": warm_up_s}
        for message in shapes(wanted):
            started, before = time.perf_counter(), spinner.count() if spinner else 0
            figures |= measure(children, callers, exchanges, message, **times)
            if spinner:
                speed = (spinner.count() - before) / (time.perf_counter() - started)
                figures[f"{message}/kept"] = speed / free
    return figures


def gathering(
    *, wanted: list[str], name: str, seconds: float, warm_up_s: float, **options: Any
) -> Figures:
    """Requests of 100 bytes to ten servers at once, each answering a message of `wanted`."""
    contestant = side(name, options)
    figures: Figures = {}
    for message in shapes(wanted):
        handler = answering(Shape.parse(message))
        with Children() as children:
            servers = [children.start(serve, contestant, handler, nothing) for _ in range(GATHERED)]
            client = children.start(call, contestant, [server.reply() for server in servers])
            client.reply()
            figures |= measure(
                *(children, [client], gathers, message), seconds=seconds, warm_up_s=warm_up_s
            )
    return figures


def streaming(
    *, wanted: list[str], name: str, seconds: float, warm_up_s: float, **options: Any
) -> Figures:
    """Messages of 100 bytes one way, in bursts; the rate is that of messages."""
    contestant = side(name, options)
    (message,) = shapes(wanted)
    with Children() as children:
        address = children.start(serve, contestant, swallow, nothing).reply()
        client = children.start(call, contestant, [address])
        client.reply()
        return measure(
            *(children, [client], streams, message), seconds=seconds, warm_up_s=warm_up_s
        )


def nothing(_: Connection) -> None:
    """Do nothing once the server listens."""
