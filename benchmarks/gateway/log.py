"""From a byte written in a worker to the byte at a reader: server-sent events against polling.

The poller asks the same gateway for what is behind its offset each 100 ms, over one connection.
The pauses between lines fall out of step with that.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.executor.log import PAUSES_S, POLL_S
from benchmarks.gateway.address import Address, get, post
from benchmarks.gateway.forebay import served
from benchmarks.stopwatch import MS, Figures, summary


def pushed(lines: int) -> Figures:
    """The log of a request as server-sent events, followed from its start."""
    with served(workers=1) as address:
        connection, id_ = _begun(address, lines)
        accept = {"Accept": "text/event-stream"}
        connection.request("GET", f"/v1/requests/{id_}/logs", headers=address.headers | accept)
        return _figures(_events(connection.getresponse()), lines)


def polled(lines: int) -> Figures:
    """The same log, asked for each 100 ms."""
    with served(workers=1) as address:
        connection, id_ = _begun(address, lines)
        return _figures(_polls(connection, address, id_, lines), lines)


def _begun(address: Address, lines: int) -> tuple[http.client.HTTPConnection, str]:
    connection = address.connect()
    pauses = [PAUSES_S[number % len(PAUSES_S)] for number in range(lines)]
    body = json.dumps({"pauses": pauses}).encode()
    told = json.loads(post(connection, address, "/v1/requests/tell_time", body))
    return connection, told["id"]


def _events(answer: http.client.HTTPResponse) -> Iterator[str]:
    """The pieces of text, when they have come."""
    if answer.status != 200:
        raise ValueError(f"the stream was answered {answer.status}: {answer.read(200)!r}")
    for line in answer:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if (name, value) == ("event", "end"):
            return
        if name == "data":
            yield json.loads(value)["text"]


def _polls(
    connection: http.client.HTTPConnection, address: Address, id_: str, lines: int
) -> Iterator[str]:
    offset, seen = 0, 0
    while seen < lines:
        text = get(connection, address, f"/v1/requests/{id_}/logs?offset={offset}").decode()
        if text:
            yield text
        offset += len(text)
        seen += text.count("\n")
        time.sleep(POLL_S)


def _figures(pieces: Iterator[str], lines: int) -> Figures:
    """How old each line was when its piece came; none is split, for each is written at once."""
    samples: list[int] = []
    for piece in pieces:
        now = time.monotonic_ns()
        samples += [now - int(line) for line in piece.split()]
    if len(samples) != lines:
        raise ValueError(f"{len(samples)} of {lines} lines came")
    return summary(samples, unit_ns=MS)


OPTIONS = {"lines": 100}
QUICK = {"lines": 40}
PUSHED = Contestant(
    "log as server-sent events", "benchmarks.gateway.log:pushed", OWN, OPTIONS, QUICK
)
POLLED = Contestant("log polled each 100 ms", "benchmarks.gateway.log:polled", OWN, OPTIONS, QUICK)

CLAIMS = [Claim("gateway.log.first_byte.vs_poll", PUSHED, POLLED, "p50", "ms")]
