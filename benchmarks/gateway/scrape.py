"""One GET of /metrics: with a hundred thousand requests in the queue, and with none.

They wait behind one that never ends, since the lane has one worker.
"""

from __future__ import annotations

import http.client
import json

from benchmarks.claim import OWN, Claim, Contestant, Option
from benchmarks.gateway.address import Address, get, post
from benchmarks.gateway.forebay import served
from benchmarks.stopwatch import Figures, time_calls

MANY = 100_000
AT_ONCE = 1_000
LINE = "forebay_requests_queued{"


def beside_queued(queued: int, scrapes: int) -> Figures:
    """The scrapes in microseconds, one after the other over one connection."""
    # A worker more than the short lane's: it runs the request that the others wait for.
    with served(workers=1, MAX_WORKERS="2", LONG_WORKERS="1") as address:
        connection = address.connect()
        _fill(connection, address, queued)
        _check(get(connection, address, "/metrics"), queued)

        def scrape(_: int) -> bool:
            return LINE.encode() in get(connection, address, "/metrics")

        return time_calls(scrape, calls=scrapes, warm_up=scrapes // 10)


def _fill(connection: http.client.HTTPConnection, address: Address, queued: int) -> None:
    if not queued:
        return
    post(connection, address, "/v1/requests/occupy", b"{}")
    batch = json.dumps({"requests": [{"name": "occupy", "arguments": {}}] * AT_ONCE}).encode()
    for _ in range(queued // AT_ONCE):
        post(connection, address, "/v1/batch", batch)


def _check(text: bytes, queued: int) -> None:
    """Refuse figures of another queue than the one that is claimed."""
    lines = [line for line in text.decode().splitlines() if line.startswith(LINE)]
    waiting = sum(float(line.rpartition(" ")[2]) for line in lines)
    if waiting != queued:
        raise ValueError(f"{waiting:.0f} requests wait, not {queued}: {lines}")


def _contestant(name: str, queued: int) -> Contestant:
    options: dict[str, Option] = {"queued": queued, "scrapes": 300}
    function = "benchmarks.gateway.scrape:beside_queued"
    return Contestant(name, function, OWN, options, {"scrapes": 200})


QUEUED = _contestant("GET /metrics, 100,000 queued", MANY)
EMPTY = _contestant("GET /metrics, none queued", 0)

CLAIMS = [Claim("gateway.scrape.queued_1e5.vs_0", QUEUED, EMPTY, "p50", "us")]
