"""No-op requests while a million others wait in another lane, against a thousand.

The others are long requests behind one that never ends, as many workers as may be being there;
the limits of the queue are raised by name (`max_queued`, `max_queue_bytes`).
`no-op/queued_bytes` is what the server's resident memory grew by for each that waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import processes
from benchmarks.claim import OWN, Claim, Contestant, Option
from benchmarks.executor.forebay import queue, served
from benchmarks.executor.load import flood
from benchmarks.executor.throughput import IN_FLIGHT, RATE, WARM_UP, WORKERS
from benchmarks.stopwatch import Figures

if TYPE_CHECKING:
    import forebay

MANY, FEW = 1_000_000, 1_000
AT_ONCE = 10_000
LIMITS = {"MAX_QUEUED": "2000000", "MAX_QUEUE_BYTES": "1GiB"}


def beside_queued(queued: int, requests: int) -> Figures:
    """Keep `IN_FLIGHT` short ones in flight with so many long ones in the queue."""
    # One worker more than the short lane's: it runs the long request that all the others wait for.
    lanes = {"MAX_WORKERS": str(WORKERS + 1), "LONG_WORKERS": "1"}
    with served(WORKERS, **lanes, **LIMITS) as client:
        server = [client.info()["pid"]]
        flood(queue(client), requests=WARM_UP, in_flight=IN_FLIGHT, warm_up=0)
        before = processes.memory_bytes(server)
        _fill(client, queued)
        grown = processes.memory_bytes(server) - before
        figures = flood(queue(client), requests=requests, in_flight=IN_FLIGHT, warm_up=WARM_UP)
        _check(client, queued)
    return figures | {"no-op/queued_bytes": grown / queued}


def _fill(client: forebay.Client, queued: int) -> None:
    from benchmarks.executor.application import occupy

    client.submit(occupy)
    while queued:
        now = min(queued, AT_ONCE)
        client.submit_many(occupy, [{}] * now)
        queued -= now


def _check(client: forebay.Client, queued: int) -> None:
    waiting = client.info()["figures"]["lanes"]["long"]["ready"]
    if waiting != queued:
        raise ValueError(f"{waiting} requests wait, not {queued}: the figures would mean nothing")


def _contestant(queued: int) -> Contestant:
    options: dict[str, Option] = {"queued": queued, "requests": 80_000}
    function = "benchmarks.executor.scale:beside_queued"
    return Contestant(f"forebay, {queued:,} queued", function, OWN, options, {"requests": 30_000})


CLAIMS = [
    Claim(
        "executor.scale.queued_1e6.vs_1e3",
        *(_contestant(MANY), _contestant(FEW), *RATE),
        higher_is_better=True,
        long=True,
    )
]
