"""What the gateway takes at rest, after it has answered: proportional set size of that one process.

The peer is the same minimal FastAPI application on uvicorn as in the submissions.
"""

from __future__ import annotations

import time

from benchmarks import processes
from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.gateway.address import Address, post
from benchmarks.stopwatch import Figures

POSTS = 200
REST_S = 2.0
BODY = b'{"index": 7}'


def forebay() -> Figures:
    """The gateway of a server with one worker."""
    from benchmarks.gateway.forebay import gateway_of, served

    with served(workers=1) as address:
        _use(address, "/v1/requests/noop")
        return _figures(gateway_of(address.port))


def fastapi() -> Figures:
    """The process of uvicorn."""
    from benchmarks.gateway.peers.uvicorn import served

    with served("benchmarks.gateway.peers.fastapi_app:app") as address:
        _use(address, "/noop")
        (server,) = processes.descendants(processes.tree()[0])
        return _figures(server)


def _use(address: Address, path: str) -> None:
    connection = address.connect()
    for _ in range(POSTS):
        post(connection, address, path, BODY)
    connection.close()


def _figures(pid: int) -> Figures:
    time.sleep(REST_S)
    return {"memory_mb": processes.memory_bytes([pid]) / 1e6}


FOREBAY = Contestant("the gateway at rest", "benchmarks.gateway.memory:forebay", OWN)
FASTAPI = Contestant("FastAPI on uvicorn at rest", "benchmarks.gateway.memory:fastapi", "http")

CLAIMS = [Claim("gateway.memory.vs_fastapi", FOREBAY, FASTAPI, "memory_mb", "MB")]
