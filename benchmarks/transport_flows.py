"""Messages that are not echoes: one way in a stream, and ten answers gathered.

The stream comes in bursts of 20,000 messages of 100 bytes; the sender has a hundred of them at a
time and hands them over together, which both sides have a call for, and the receiver answers once
after each burst. distributed's sender is the `BatchedSend` of its workers and scheduler, with
their interval of 2 ms.
Ten servers in ten processes answer requests of 100 bytes, all in flight at once, with 1e7 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.claim import Claim
from benchmarks.transport_contestants import (
    DASK,
    DASK_TLS,
    FOREBAY,
    FOREBAY_TLS,
    ROUND,
    System,
    row,
)


def _stream(name: str, ours: System, peers: Sequence[System]) -> Claim:
    first, *others = (each.contestant("stream", f"{ROUND}:streaming") for each in (ours, *peers))
    return row(name, first, others, "100", unit="messages/s")


def _gather(name: str, ours: System, peers: Sequence[System]) -> Claim:
    first, *others = (
        each.contestant("gather", f"{ROUND}:gathering", quick_s=0.4) for each in (ours, *peers)
    )
    return row(name, first, others, "1e7")


CLAIMS = [
    _stream("tcp.stream100.vs_dask", FOREBAY, DASK),
    _gather("tcp.gather10x1e7.vs_dask", FOREBAY, DASK),
    _gather("tls.gather10x1e7.vs_dask", FOREBAY_TLS, DASK_TLS),
]
