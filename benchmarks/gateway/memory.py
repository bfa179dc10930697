"""What the gateway takes at rest, after it has answered: proportional set size of that one process.

The peer is the same minimal FastAPI application on uvicorn as in the submissions.
A page that several processes share counts for each of them in parts. Our server, its keeper, its
template and its worker run the same Python as the gateway does, so beside each side as many
interpreters run as make `INTERPRETERS` in all: else more of them would share ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.gateway.address import Address, post
from benchmarks.stopwatch import Figures

POSTS = 200
REST_S = 2.0
BODY = b'{"index": 7}'
INTERPRETERS = 8
IDLE = "import asyncio, json, logging, ssl, sys; print(flush=True); sys.stdin.read()"
NOTE = (
    "the proportional set size counts a page of a shared library by the number of processes that "
    f"have it, so {INTERPRETERS} interpreters of the same libpython run on each side"
)


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
    with _as_many_interpreters():
        time.sleep(REST_S)
        return {
            "memory_mb": processes.memory_bytes([pid]) / 1e6,
            "interpreters": len(_interpreters()),
        }


@contextmanager
def _as_many_interpreters() -> Iterator[None]:
    """So many that with this process and all below it there are `INTERPRETERS`.

    Raises:
        ValueError: there are more already.
    """
    missing = INTERPRETERS - len(_interpreters())
    if missing < 0:
        raise ValueError(f"{INTERPRETERS - missing} interpreters run, not {INTERPRETERS}")
    with ExitStack() as started:
        for _ in range(missing):
            process = started.enter_context(_idle())
            assert process.stdout is not None
            process.stdout.readline()
        yield


@contextmanager
def _idle() -> Iterator[subprocess.Popen[bytes]]:
    """An interpreter that has imported what both sides import, and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", IDLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.communicate()


def _interpreters() -> list[int]:
    """This process and those below it that have mapped the same Python as this one."""
    own = _python(os.getpid())
    return [pid for pid in processes.tree() if _python(pid) & own]


def _python(pid: int) -> set[str]:
    """The files of the interpreter itself that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return set()  # it ended meanwhile
    found = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    return {path for path in found if Path(path).name.startswith(("libpython3.", "python3"))}


FOREBAY = Contestant("the gateway at rest", "benchmarks.gateway.memory:forebay", OWN)
FASTAPI = Contestant("FastAPI on uvicorn at rest", "benchmarks.gateway.memory:fastapi", "http")

CLAIMS = [Claim("gateway.memory.vs_fastapi", FOREBAY, FASTAPI, "memory_mb", "MB", note=NOTE)]
