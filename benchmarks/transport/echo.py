"""Echoes over TCP and TLS, one request in flight on each connection.

`p3c4` is three processes with four connections each, as in the benchmark of the asyncio comm that
distributed had.
"""

from __future__ import annotations

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.transport.contestants import (
    BULK_ROUNDS,
    DASK,
    DASK_TLS,
    FOREBAY,
    FOREBAY_TLS,
    QUICK,
    TIMES,
    TORNADO,
    UVLOOP,
    System,
    echo_row,
    ours,
    row,
)

C_EPOLL = Contestant(
    "C epoll, p1c1", "benchmarks.transport.peers.epoll:echoes", "main", TIMES, QUICK, asks=True
)
C_LOOKING = Contestant(
    *(
        "C epoll that looks, p1c1",
        "benchmarks.transport.peers.epoll:looking_echoes",
        OWN,
        TIMES,
        QUICK,
    ),
    asks=True,
)
ZMQ = System("pyzmq", "zmq", {})
GRPC = System("grpc.aio stream", "grpc", {})
FOREBAY_ASYNCIO = ours("forebay on asyncio", scheme="tcp", loop="asyncio")
FOREBAY_UVLOOP = ours("forebay on uvloop", scheme="tcp", loop="uvloop")

P1C1 = (1, 1)
P1C4 = (1, 4)
P3C4 = (3, 4)

VS_DASK = [
    echo_row("tcp.1e3.p1c1.vs_dask", FOREBAY, DASK, "1e3", *P1C1),
    echo_row("tcp.1e3.p3c4.vs_dask", FOREBAY, DASK, "1e3", *P3C4),
    echo_row("tcp.1e4.p1c1.vs_dask", FOREBAY, DASK, "1e4", *P1C1),
    echo_row("tcp.1e5.p1c1.vs_dask", FOREBAY, DASK, "1e5", *P1C1),
    echo_row("tcp.1e6.p1c1.vs_dask", FOREBAY, DASK, "1e6", *P1C1),
    echo_row("tcp.1e6.p3c4.vs_dask", FOREBAY, DASK, "1e6", *P3C4, rounds_min=BULK_ROUNDS),
    echo_row("tcp.1e7.p1c1.vs_dask", FOREBAY, DASK, "1e7", *P1C1, rounds_min=BULK_ROUNDS),
    echo_row("tcp.5x1e6.p1c1.vs_tornado", FOREBAY, TORNADO, "5x1e6", *P1C1),
    echo_row("tcp.1000x100.p1c1.vs_dask", FOREBAY, DASK, "1000x100", *P1C1),
    # The rest of the original's table and scenes; nothing is promised there.
    *(
        echo_row(f"tcp.{size}.p3c4.vs_dask", FOREBAY, DASK, size, *P3C4, long=True)
        for size in ("1e4", "1e5", "1e7", "5x1e6")
    ),
]
VS_UVLOOP = [
    echo_row("tcp.1e3.p1c1.vs_uvloop", FOREBAY, [UVLOOP], "1e3", *P1C1),
    echo_row("tcp.1e3.p1c4.vs_uvloop", FOREBAY, [UVLOOP], "1e3", *P1C4),
    echo_row("tcp.1e3.p3c4.vs_uvloop", FOREBAY, [UVLOOP], "1e3", *P3C4),
    Claim(
        "transport.tcp.1e3.p3c4.cpu.vs_uvloop",
        *(FOREBAY.echo(*P3C4), UVLOOP.echo(*P3C4), "1e3/cpu", "us"),
    ),
    echo_row("tcp.1e3.400conn.vs_uvloop", FOREBAY, [UVLOOP], "1e3", 1, 400),
    *(
        echo_row(f"tcp.{size}.p1c1.vs_uvloop", FOREBAY, [UVLOOP], size, *P1C1)
        for size in ("1e4", "1e5", "1e6", "1e7")
    ),
]
VS_OTHERS = [
    row("tcp.1e3.p1c1.vs_c_epoll", FOREBAY.echo(*P1C1), [C_EPOLL], "1e3"),
    row("tcp.1e3.p1c1.vs_c_spinning", FOREBAY.echo(*P1C1), [C_LOOKING], "1e3"),
    row("tcp.1e6.p1c1.vs_c_epoll", FOREBAY.echo(*P1C1), [C_EPOLL], "1e6"),
    echo_row("tcp.1e3.p1c1.vs_zmq", FOREBAY, [ZMQ], "1e3", *P1C1),
    echo_row("tcp.1e3.p1c1.vs_grpc", FOREBAY, [GRPC], "1e3", *P1C1),
    # The same code where the program's loop is not ours; nothing is promised there.
    *(
        row(f"tcp.1e3.p1c1.{loop}.vs_uvloop", on.echo(*P1C1), [UVLOOP.echo(*P1C1)], "1e3")
        for loop, on in (("on_asyncio", FOREBAY_ASYNCIO), ("on_uvloop", FOREBAY_UVLOOP))
    ),
]
TLS = [
    echo_row("tls.1e3.p1c1.vs_dask", FOREBAY_TLS, DASK_TLS, "1e3", *P1C1),
    echo_row("tls.1e3.p3c4.vs_dask", FOREBAY_TLS, DASK_TLS, "1e3", *P3C4),
    *(
        echo_row(f"tls.{size}.p1c1.vs_dask", FOREBAY_TLS, DASK_TLS, size, *P1C1)
        for size in ("1e5", "1e6", "1e7")
    ),
    *(
        echo_row(f"tls.{size}.p3c4.vs_dask", FOREBAY_TLS, DASK_TLS, size, *P3C4, long=True)
        for size in ("1e4", "1e5", "1e6", "1e7")
    ),
    echo_row("tls.1e6.p10c2.vs_dask", FOREBAY_TLS, DASK_TLS, "1e6", 10, 2, long=True),
    echo_row("tls.1e3.p10c5.vs_dask", FOREBAY_TLS, DASK_TLS, "1e3", 10, 5, long=True),
]

CLAIMS = [*VS_DASK, *VS_UVLOOP, *VS_OTHERS, *TLS]
