"""No-op requests while ten readers in one other process follow the server's events.

A tenth of the requests have one of ten names, so that each name has a hundredth of all events. Each
reader follows one of them, which the server filters. The peer is the same load without readers;
ten readers of everything are shown beside it, and claim nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.claim import OWN, Claim, Contestant, Option
from benchmarks.executor.events_app import FOLLOWED
from benchmarks.executor.forebay import RESULT_S, served
from benchmarks.executor.load import Queue, flood
from benchmarks.executor.throughput import IN_FLIGHT, RATE, WARM_UP, WORKERS
from benchmarks.stopwatch import Figures

if TYPE_CHECKING:
    import forebay

TARGET = "benchmarks.executor.events_app:app"
EVERYTHING = ""
EVENTS = 3
"""Of each request: accepted, started, ended."""
LATE_S = 5.0


def beside_readers(readers: int, everything: bool, requests: int) -> Figures:
    """Keep `IN_FLIGHT` in flight; the readers have to get every event of their names."""
    names = [EVERYTHING if everything else f"noop_{number}" for number in range(readers)]
    with served(WORKERS, target=TARGET) as client, _reading(client, names) as counted:
        figures = flood(_queue(client), requests=requests, in_flight=IN_FLIGHT, warm_up=WARM_UP)
        _check(counted, 0 if everything else EVENTS * requests // (FOLLOWED * 10))
    return figures


def _check(counted: Callable[[], list[int]], least: int) -> None:
    """Make sure that each reader gets so many events; the last ones may still be on their way."""
    deadline = time.monotonic() + LATE_S
    while min(counts := counted(), default=least) < least:
        if time.monotonic() > deadline:
            raise ValueError(f"the readers got {counts} events, not {least} each")


def _queue(client: forebay.Client) -> Queue[Any]:
    def submit(index: int) -> Any:
        name = "noop" if index % 10 else f"noop_{index // 10 % FOLLOWED}"
        return client.submit_nowait(name, arguments={"index": index})

    def take(request: Any) -> int:
        value: int = request.result(RESULT_S)
        return value

    return Queue(submit, take)


@contextmanager
def _reading(client: forebay.Client, names: Sequence[str]) -> Iterator[Callable[[], list[int]]]:
    """Readers in a process; gives a function that asks them how much they got."""
    if not names:
        yield list
        return
    url = f"unix://{client.info()['socket']}"
    command = (sys.executable, "-m", "benchmarks.executor.events_readers", url, *names)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout
        if stdout.readline() != "ready\n":
            raise RuntimeError("the readers did not begin")

        def counted() -> list[int]:
            stdin.write("\n")
            stdin.flush()
            counts: list[int] = json.loads(stdout.readline())
            return counts

        try:
            yield counted
        finally:
            process.terminate()


def _contestant(name: str, readers: int, *, everything: bool = False) -> Contestant:
    options: dict[str, Option] = {
        "readers": readers,
        "everything": everything,
        "requests": 80_000,
    }
    function = "benchmarks.executor.events:beside_readers"
    return Contestant(name, function, OWN, options, {"requests": 30_000})


ALONE = _contestant("forebay, no reader", 0)
READERS = _contestant("forebay, 10 readers of a name each", FOLLOWED)
OF_EVERYTHING = _contestant("forebay, 10 readers of everything", FOLLOWED, everything=True)

CLAIMS = [
    Claim("executor.events.readers_10.vs_none", READERS, ALONE, *RATE, higher_is_better=True),
    Claim(
        "executor.events.everything_10.vs_none", OF_EVERYTHING, ALONE, *RATE, higher_is_better=True
    ),
]
