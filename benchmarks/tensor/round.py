"""One round of a contestant that pulls from a server in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import SIZES, Puller, measure, sizes
from benchmarks.transport.processes import Children

# Serves tensors of this size; sends its address once it does, and goes on until it is ended.
Serve = Callable[..., None]
# Connects to that address, and pulls tensors of this size.
Connect = Callable[[Any, int], AbstractContextManager[Puller]]


def pulls(
    wanted: list[str],
    serve: Serve,
    connect: Connect,
    *options: Any,
    seconds: float,
    warm_up_s: float,
) -> Figures:
    """Measure each size that is wanted with a server of its own.

    Args:
        wanted: figures, `size/figure`.
        serve: gets its end of a pipe, the size, and the options.
        connect: makes the puller.
        options: further arguments of the server.
        seconds: how long each way is timed.
        warm_up_s: how long each way is not.
    """
    figures: Figures = {}
    for name in sizes(wanted):
        with Children() as children:
            server = children.start(serve, SIZES[name], *options)
            with connect(server.reply(), SIZES[name]) as puller:
                figures |= measure(name, puller, seconds=seconds, warm_up_s=warm_up_s)
    return figures


def stay(pipe: Connection) -> None:
    """Wait for the end: nobody sends anything more."""
    pipe.poll(None)
