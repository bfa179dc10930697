"""Messages that are not echoes: one way in a stream, and ten answers gathered.

The stream comes in bursts of 20,000 messages of 100 bytes; the sender has a hundred of them at a
time and hands them over together, which both sides have a call for, and the receiver answers once
after each burst. distributed's sender is the `BatchedSend` of its workers and scheduler, with
their interval of 2 ms.
Ten servers in ten processes answer requests of 100 bytes, all in flight at once, with 1e7 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.claim import Claim
from benchmarks.transport.contestants import (
    DASK,
    DASK_TLS,
    FOREBAY,
    FOREBAY_TLS,
    ROUND,
    System,
    row,
)

INTERVAL = {"interval": "0ms"}
DASK_AT_ONCE = tuple(
    replace(system, label=f"{system.label}, interval 0", options={**system.options, **INTERVAL})
    for system in DASK
)
COMM_AT_ONCE = System(
    "forebay in dask, interval 0",
    "dask",
    {"backend": "forebay", "loop": "forebay", **INTERVAL},
)


def _stream(name: str, ours: System, peers: Sequence[System], *, long: bool = False) -> Claim:
    first, *others = (each.contestant("stream", f"{ROUND}:streaming") for each in (ours, *peers))
    return row(name, first, others, "100", unit="messages/s", long=long)


def _gather(name: str, ours: System, peers: Sequence[System]) -> Claim:
    first, *others = (
        each.contestant("gather", f"{ROUND}:gathering", quick_s=0.4) for each in (ours, *peers)
    )
    return row(name, first, others, "1e7")


CLAIMS = [
    _stream("tcp.stream100.vs_dask", FOREBAY, DASK),
    # Over our comm, without the pause between batches that tornado's needs; theirs the better of
    # both intervals.
    _stream(
        "dask_comm.stream100.interval_0.vs_dask", COMM_AT_ONCE, (*DASK, *DASK_AT_ONCE), long=True
    ),
    _gather("tcp.gather10x1e7.vs_dask", FOREBAY, DASK),
    _gather("tls.gather10x1e7.vs_dask", FOREBAY_TLS, DASK_TLS),
]
