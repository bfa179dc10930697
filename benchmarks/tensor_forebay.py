"""Our server and client under the same pulls: prepared handles, and memory that is the arena's."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.stopwatch import Figures
from benchmarks.tensor_load import IN_FLIGHT, TENSORS, WRONG, Puller, contents
from benchmarks.tensor_round import pulls, stay

LIMIT = "512MiB"


def serve(pipe: Connection, size: int, url: str) -> None:
    """Publish the tensors; no Python runs for a pull."""
    from forebay.tensor import TensorServer

    tensors = {f"tensor/{number}": row for number, row in enumerate(contents(size))}
    with TensorServer(tensors, url, arena=LIMIT) as server:
        pipe.send(server.url)
        stay(pipe)


@contextmanager
def connect(url: str, size: int) -> Iterator[Puller]:
    """`pull` and `pull_many` with handles and destinations."""
    with _pulls(url, size) as (client, out, each):
        first = each[:IN_FLIGHT]

        def one(number: int) -> None:
            client.pull(*each[number])

        yield Puller(out, one, lambda: client.pull_many(first))


@contextmanager
def connect_near(url: str, size: int) -> Iterator[Puller]:
    """The same, if no row comes over the socket.

    Raises:
        NotImplementedError: they do.
    """
    with _pulls(url, size) as (client, out, each):
        first = each[:IN_FLIGHT]
        client.pull_many(first)
        if client.metrics()["received_bytes"] > IN_FLIGHT * size:
            raise NotImplementedError(
                "forebay.tensor has no shared-memory fabric: a socket was used"
            )

        def one(number: int) -> None:
            client.pull(*each[number])

        yield Puller(out, one, lambda: client.pull_many(first))


@contextmanager
def connect_planned(url: str, size: int) -> Iterator[Puller]:
    """Plans, which are made once."""
    with _pulls(url, size) as (client, out, each):
        plans = [client.plan([pull]) for pull in each]
        together = client.plan(each[:IN_FLIGHT])
        yield Puller(out, lambda number: plans[number].pull(), together.pull)


@contextmanager
def _pulls(url: str, size: int) -> Iterator[tuple[Any, Any, list[Any]]]:
    from forebay.memory import Arena
    from forebay.tensor import TensorClient

    with Arena(LIMIT) as arena, TensorClient(url, arena=arena) as client:
        out = arena.empty((TENSORS, size), "u1")
        out[...] = WRONG
        each = [(client.tensor(f"tensor/{number}"), None, out[number]) for number in range(TENSORS)]
        yield client, out, each
        del out, each


def tcp(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """Over loopback."""
    url = "tcp://127.0.0.1:0"
    return pulls(wanted, serve, connect, url, seconds=seconds, warm_up_s=warm_up_s)


def tcp_planned(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """Over loopback, with plans."""
    url = "tcp://127.0.0.1:0"
    return pulls(wanted, serve, connect_planned, url, seconds=seconds, warm_up_s=warm_up_s)


def shared_memory(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """On one machine, where the client reads the server's memory.

    Raises:
        NotImplementedError: there is no such fabric yet.
    """
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        url = f"unix://{Path(folder) / 'tensors.sock'}"
        return pulls(wanted, serve, connect_near, url, seconds=seconds, warm_up_s=warm_up_s)
