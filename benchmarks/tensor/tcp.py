"""Pulls over TCP on loopback: 16 in flight, ours beside what Python programs use today."""

from __future__ import annotations

from benchmarks.claim import OWN, Claim, Contestant, Option

TIMES: dict[str, Option] = {"seconds": 1.5, "warm_up_s": 0.2}
QUICK: dict[str, Option] = {"seconds": 0.5, "warm_up_s": 0.1}


def contestant(name: str, function: str, environment: str = OWN) -> Contestant:
    """One that is asked for sizes, and times pulls in flight and one at a time."""
    return Contestant(name, function, environment, TIMES, QUICK, asks=True)


FOREBAY = contestant("forebay pull_many, TCP", "benchmarks.tensor.forebay:tcp")
PLANNED = contestant("forebay plan, TCP", "benchmarks.tensor.forebay:tcp_planned")
SOCKETS = contestant("sockets", "benchmarks.tensor.peers.sockets:plain", "main")
VECTORED = contestant("sockets, sendmsg", "benchmarks.tensor.peers.sockets:vectored", "main")
GRPC = contestant("gRPC", "benchmarks.tensor.peers.grpc:futures", "main")
GRPC_ASYNCIO = contestant("gRPC asyncio", "benchmarks.tensor.peers.grpc:awaited", "main")
ZMQ = contestant("pyzmq", "benchmarks.tensor.peers.zmq:router", "main")
MOONCAKE = contestant("Mooncake", "benchmarks.tensor.peers.mooncake:reads", "mooncake")


def row(
    name: str,
    ours: Contestant,
    peer: Contestant,
    *variants: Contestant,
    figure: str = "rate",
    optional: bool = False,
) -> Claim:
    """A row whose name begins with fabric and size, such as `tcp.64k`."""
    size = {"4k": "4 KiB", "64k": "64 KiB", "1m": "1 MiB"}[name.split(".")[1]]
    return Claim(
        f"tensor.{name}",
        ours,
        peer,
        f"{size}/{figure}",
        "tensors/s" if figure == "rate" else "us",
        higher_is_better=figure == "rate",
        variants=variants,
        optional=optional,
    )


CLAIMS = [
    *(row(f"tcp.{size}.x16.vs_raw_sockets", FOREBAY, SOCKETS) for size in ("4k", "64k", "1m")),
    row("tcp.64k.x16.vs_grpc", FOREBAY, GRPC, GRPC_ASYNCIO),
    row("tcp.64k.x16.vs_zmq", FOREBAY, ZMQ),
    row("tcp.64k.x16.vs_mooncake", FOREBAY, MOONCAKE, optional=True),
    # What a program reaches that hands the kernel all tensors at once, and ours with plans.
    *(row(f"tcp.{size}.x16.planned.vs_sendmsg", PLANNED, VECTORED) for size in ("4k", "64k", "1m")),
]
