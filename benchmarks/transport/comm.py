"""Our backend inside `distributed`, against its own comms: echoes as in `echo`."""

from __future__ import annotations

from benchmarks.transport.contestants import BULK_ROUNDS, DASK, System, echo_row

FOREBAY_COMM = System("forebay in dask", "dask", {"backend": "forebay", "loop": "forebay"})

CLAIMS = [
    echo_row("dask_comm.1e3.p1c1.vs_dask", FOREBAY_COMM, DASK, "1e3", 1, 1),
    echo_row(
        *("dask_comm.1e6.p1c1.vs_dask", FOREBAY_COMM, DASK, "1e6", 1, 1), rounds_min=BULK_ROUNDS
    ),
]
