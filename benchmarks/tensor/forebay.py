"""Our server and client under the same pulls: handles that were looked up, and the peers' memory.

The tensors lie in the server's arena; rows go where everybody's go, into numpy's own memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import IN_FLIGHT, TENSORS, Bytes, Puller, contents, destinations
from benchmarks.tensor.round import pulls, stay

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
        yield _puller(client, out, each)


@contextmanager
def connect_near(url: str, size: int) -> Iterator[Puller]:
    """The same, if no row comes over the socket.

    Raises:
        NotImplementedError: they do.
    """
    with _pulls(url, size, "auto") as (client, out, each):
        client.pull_many(each[:IN_FLIGHT])
        if client.metrics()["received_bytes"] > IN_FLIGHT * size:
            raise NotImplementedError(f"a socket was used: {client.metrics()['fabric']}")
        yield _puller(client, out, each)


@contextmanager
def connect_planned(url: str, size: int) -> Iterator[Puller]:
    """Plans, which are made once."""
    with _pulls(url, size) as (client, out, each):
        plans = [client.plan([pull]) for pull in each]
        together = client.plan(each[:IN_FLIGHT])
        yield Puller(out, lambda number: plans[number].pull(), together.pull)


@contextmanager
def _pulls(url: str, size: int, fabric: str = "stream") -> Iterator[tuple[Any, Bytes, list[Any]]]:
    from forebay.tensor import TensorClient

    out = destinations(size)
    with TensorClient(url, fabric=fabric) as client:
        handles = [client.tensor(f"tensor/{number}") for number in range(TENSORS)]
        yield client, out, [(handle, None, row) for handle, row in zip(handles, out, strict=True)]


def _puller(client: Any, out: Bytes, each: list[Any]) -> Puller:
    first = each[:IN_FLIGHT]
    return Puller(out, lambda number: client.pull(*each[number]), lambda: client.pull_many(first))


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
