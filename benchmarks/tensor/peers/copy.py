"""np.copyto from SharedMemory: nothing signals, so a pull on one machine is hardly faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker, shared_memory
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import IN_FLIGHT, TENSORS, Bytes, Puller, contents, destinations
from benchmarks.tensor.round import pulls, stay


def serve(pipe: Connection, size: int) -> None:
    """Put the tensors into memory that others attach."""
    shared = shared_memory.SharedMemory(create=True, size=TENSORS * size)
    # The client unlinks it; a tracker would complain that it is gone when this process is ended.
    resource_tracker.unregister(f"/{shared.name}", "shared_memory")
    _tensors(shared, size)[...] = contents(size)
    pipe.send(shared.name)
    stay(pipe)


@contextmanager
def connect(name: str, size: int) -> Iterator[Puller]:
    """Copy out of it."""
    out = destinations(size)
    shared = shared_memory.SharedMemory(name)
    shared.unlink()  # the mappings keep it, whatever becomes of the processes
    sources = list(_tensors(shared, size))
    targets = list(out)
    first = list(zip(targets[:IN_FLIGHT], sources[:IN_FLIGHT], strict=True))

    def many() -> None:
        for target, source in first:
            np.copyto(target, source)

    yield Puller(out, lambda number: np.copyto(targets[number], sources[number]), many)
    sources.clear()
    first.clear()


def _tensors(shared: shared_memory.SharedMemory, size: int) -> Bytes:
    return np.ndarray((TENSORS, size), np.uint8, shared.buf)


def copies(*, wanted: list[str], seconds: float, warm_up_s: float) -> Figures:
    """The contestant."""
    return pulls(wanted, serve, connect, seconds=seconds, warm_up_s=warm_up_s)
