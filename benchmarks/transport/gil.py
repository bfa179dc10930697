"""Echoes while a thread of the server spins in Python and never gives up the GIL by itself.

The table shows beside the requests which share of its speed the spinning thread keeps, against its
speed beside an idle server.
A lone client leaves our loop without work after each request, so it is measured with `spin_us`.
Six clients are three processes with two connections each.
The native handler is compared with itself where the spinner is a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.claim import Claim
from benchmarks.transport.contestants import (
    DASK,
    DASK_TLS,
    FOREBAY,
    FOREBAY_TLS,
    System,
    echo_row,
    ours,
    row,
)

MESSAGE = "1e3"

SIX = (3, 2)
ONE = (1, 1)

SPIN_US = 100

SPINNING = ours("forebay spinning", scheme="tcp", spin_us=SPIN_US)
SPINNING_TLS = ours("forebay tls spinning", scheme="tls", spin_us=SPIN_US)
NATIVE = ours("forebay native", scheme="tcp", native=True)
FOREBAY_UVLOOP = ours("forebay on uvloop", scheme="tcp", loop="uvloop")
FOREBAY_TLS_UVLOOP = ours("forebay tls on uvloop", scheme="tls", loop="uvloop")


def _row(name: str, ours: System, peers: Sequence[System], clients: tuple[int, int]) -> Claim:
    return echo_row(f"gil.{name}.vs_dask", ours, peers, MESSAGE, *clients, hog="inside")


CLAIMS = [
    _row("6clients", FOREBAY, DASK, SIX),
    _row("1client", SPINNING, DASK, ONE),
    _row("tls_6clients", FOREBAY_TLS, DASK_TLS, SIX),
    row(
        "gil.native.vs_free",
        NATIVE.echo(*SIX, hog="inside"),
        [NATIVE.echo(*SIX, hog="outside")],
        MESSAGE,
    ),
    _row("native", NATIVE, DASK, SIX),
    # Shown beside these, nothing is promised: the other combinations of the experiment.
    _row("tls_1client", SPINNING_TLS, DASK_TLS, ONE),
    _row("native_1client", NATIVE, DASK, ONE),
    _row("on_uvloop_6clients", FOREBAY_UVLOOP, DASK, SIX),
    _row("on_uvloop_1client", FOREBAY_UVLOOP, DASK, ONE),
    _row("on_uvloop_tls_6clients", FOREBAY_TLS_UVLOOP, DASK_TLS, SIX),
    _row("on_uvloop_tls_1client", FOREBAY_TLS_UVLOOP, DASK_TLS, ONE),
]
