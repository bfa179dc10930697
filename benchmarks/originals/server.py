"""SkyPilot's API server (PR 5039): the small node, the burst, and dispatch through the queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.claim import OWN, Contestant
from benchmarks.harness import Series
from benchmarks.originals.original import PUBLISHED, Original, Table, failures, figure
from benchmarks.stopwatch import Figures

WORKERS = 2
IN_FLIGHT = 1024
SUBMITTERS = (1, 10)
Submit = Callable[[int], Any]
PUBLISHED_DISPATCH = "410 to 502, by six mixes of process, thread, 1 or 10 dispatchers"


def _together(submits: list[Submit], take: Callable[[Any], object], requests: int) -> Figures:
    """So many requests by threads with a way to submit each; requests a second."""
    each, flight = requests // len(submits), IN_FLIGHT // len(submits)
    failed: list[BaseException] = []

    def work(submit: Submit) -> None:
        waiting: deque[Any] = deque()
        try:
            for number in range(each):
                if len(waiting) == flight:
                    take(waiting.popleft())
                waiting.append(submit(number))
            for handle in waiting:
                take(handle)
        except BaseException as error:
            failed.append(error)

    started = time.perf_counter()
    threads = [threading.Thread(target=work, args=(submit,)) for submit in submits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return {"rate": each * len(submits) / (time.perf_counter() - started)}


def dispatched(submitters: int, requests: int) -> Figures:
    """Handed to a worker that does nothing; nothing is kept."""
    import forebay
    from benchmarks.executor.noop import noop

    with forebay.Executor(WORKERS) as executor:
        submit: Submit = lambda number: executor.submit(noop, number)  # noqa: E731
        _together([submit], lambda future: future.result(), requests // 10)
        return _together([submit] * submitters, lambda future: future.result(), requests)


@contextmanager
def _clients(submitters: int, **settings: str) -> Iterator[list[Any]]:
    import forebay
    from benchmarks.executor.forebay import served

    with ExitStack() as stack:
        first = stack.enter_context(served(WORKERS, **settings))
        url = f"unix://{first.info()['socket']}"
        more = [stack.enter_context(forebay.Client(url)) for _ in range(submitters - 1)]
        yield [first, *more]


def enqueued(submitters: int, requests: int) -> Figures:
    """Kept on the disk, where no worker is free to take it."""
    from benchmarks.executor.application import occupy

    lanes = {"MAX_WORKERS": str(WORKERS + 1), "LONG_WORKERS": "1"}
    with _clients(submitters, **lanes) as clients:
        clients[0].submit(occupy)
        submits: list[Submit] = [
            lambda _, client=client: client.submit_nowait(occupy)  # type: ignore[misc]
            for client in clients
        ]
        return _together(submits, lambda request: request.id, requests)


def both(submitters: int, requests: int) -> Figures:
    """Kept on the disk, run by a worker, its result taken."""
    from benchmarks.executor.application import noop

    with _clients(submitters) as clients:
        submits: list[Submit] = [
            lambda number, client=client: client.submit_nowait(noop, number)  # type: ignore[misc]
            for client in clients
        ]
        _together(submits[:1], lambda request: request.result(60.0), requests // 10)
        return _together(submits, lambda request: request.result(60.0), requests)


def scenes() -> Figures:
    """The small node and the burst, as `make node` has them."""
    from benchmarks.executor.node import small_node, whole_machine

    _, node = small_node()
    burst = whole_machine()
    return {
        "node_at_once": node["burst"]["at_once"],
        "node_done": node["burst"]["done"],
        "node_kills": node["burst"]["kills"],
        "burst_at_once": burst["at_once"],
        "burst_done": burst["done"],
    }


def _dispatch(what: str, function: str, submitters: int) -> Contestant:
    name = f"{what}, {submitters} submitter{'s' if submitters > 1 else ''}"
    options = {"submitters": submitters, "requests": 30_000}
    where = f"benchmarks.originals.server:{function}"
    return Contestant(name, where, OWN, options, {"requests": 10_000})


KINDS = {
    "dispatch alone: handed to a worker, nothing kept": "dispatched",
    "enqueue alone: kept on the disk, no worker": "enqueued",
    "both: kept, run, answered": "both",
}
DISPATCH = [_dispatch(what, kind, count) for what, kind in KINDS.items() for count in SUBMITTERS]
SCENES = Contestant("small node and burst", "benchmarks.originals.server:scenes", OWN)


def tables(series: Mapping[str, Series]) -> list[Table]:
    """The scenes, and requests a second through the queue."""

    def seen(name: str) -> str:
        return figure(series, SCENES, name, ".0f")

    node = f"{seen('node_at_once')} at once, {seen('node_done')} of 30 ended well"
    return [
        Table(
            "API server: long requests at once",
            failures({SCENES.name: series[SCENES.name]}),
            ("scene", PUBLISHED, "here"),
            [
                (
                    "0.5 CPU, 750 MB",
                    "3 (the fourth is killed for memory)",
                    f"{node}, {seen('node_kills')} killed",
                ),
                (
                    "a burst of 30; published on 4 CPU, 16 GB",
                    "all at once; workers: 4 long, 17 short kept",
                    f"{seen('burst_at_once')} at once, {seen('burst_done')} of 30 ended well",
                ),
            ],
        ),
        Table(
            "API server: no-op requests a second",
            failures({one.name: series[one.name] for one in DISPATCH}),
            ("what", "measured", "requests/s"),
            [
                ("dispatch", PUBLISHED, PUBLISHED_DISPATCH),
                *((one.name, "here", figure(series, one, "rate")) for one in DISPATCH),
            ],
        ),
    ]


SERVER = Original("server", [(one, ["rate"]) for one in DISPATCH], tables, once=[SCENES])
