"""Mooncake's transfer engine over TCP: reads of memory that both sides have registered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import IN_FLIGHT, Bytes, Puller, addresses, contents, destinations
from benchmarks.tensor.round import pulls, stay

HOST = "127.0.0.1"


def serve(pipe: Connection, size: int) -> None:
    """Register the tensors, and let the engine answer."""
    tensors = contents(size)
    engine = _engine(tensors)
    pipe.send((f"{HOST}:{engine.get_rpc_port()}", addresses(tensors)))
    stay(pipe)


@contextmanager
def connect(address: tuple[str, list[int]], size: int) -> Iterator[Puller]:
    """Read one tensor, or a batch of them."""
    server, there = address
    out = destinations(size)
    engine, here = _engine(out), addresses(out)
    lengths = [size] * IN_FLIGHT

    def one(number: int) -> None:
        _check(engine.transfer_sync_read(server, here[number], there[number], size))

    def many() -> None:
        first, theirs = here[:IN_FLIGHT], there[:IN_FLIGHT]
        _check(engine.batch_transfer_sync_read(server, first, theirs, lengths))

    yield Puller(out, one, many)


def _engine(memory: Bytes) -> Any:
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    _check(engine.initialize(HOST, "P2PHANDSHAKE", "tcp", ""))
    _check(engine.register_memory(memory.ctypes.data, memory.nbytes))
    return engine


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"Mooncake's engine says {status}")


def reads(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """The contestant."""
    return pulls(wanted, serve, connect, seconds=seconds, warm_up_s=warm_up_s)
