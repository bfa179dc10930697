"""Some requests that run in the template, so that its workers share what the first runs make.

During first runs the interpreter rewrites code, fills caches and makes objects. In a worker, each
page that this writes would be copied. So the template serves some requests as its workers will.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import msgpack

from forebay import _core
from forebay.executor.app.application import App
from forebay.executor.app.context import Context
from forebay.executor.wire.codec import encode
from forebay.executor.worker.entry import Entry, entries_of
from forebay.executor.worker.forks import INTERRUPT_SIGNAL
from forebay.executor.worker.items import Items
from forebay.executor.worker.results import Results
from forebay.executor.worker.side import Side
from forebay.executor.worker.sync_loop import SyncLoop

if TYPE_CHECKING:
    from forebay._core import Connection

ROUNDS = 32
"""Enough rounds for the interpreter to specialise the code that a worker runs."""

Serve = Callable[["Connection", dict[str, Entry], Side, Results, Items], None]


def rehearse(*, asynchronous: bool) -> None:
    """Serve some requests of no application; leaves the process as it was."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, INTERRUPT_SIGNAL)}
    try:
        _perform(_serve, "plain")
        if asynchronous:
            from forebay.executor.worker.async_loop import serve_async

            _perform(serve_async, "asynchronous")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _serve(
    connection: Connection, entries: dict[str, Entry], side: Side, results: Results, items: Items
) -> None:
    SyncLoop(connection, entries, side, None, results, items).run()


def _perform(serve: Serve, name: str) -> None:
    ours, theirs = (end.detach() for end in socket.socketpair())
    server, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    caller = _core.Connection(ours, peer="the rehearsal")
    connection = _core.Connection(theirs, server=True, peer="the rehearsal")
    with server:
        side = Side(worker)
        for number in range(ROUNDS):
            arguments = encode({"value": number} if number % 2 else {})
            run = [name, arguments, f"{number:012}", 1, 60.0, None, None]
            caller.begin(0, msgpack.encode(["run", run, None]), None, 0)
        run = [name, encode({"value": -1}), "000000000000", 1, None, None, None]
        caller.begin(0, msgpack.encode(["run", run, None]), None, 0)
        caller.begin(0, msgpack.encode(["end", [], None]), None, 0)
        with contextlib.suppress(SystemExit):
            results = Results("", bytes_max=1 << 20)  # none of these becomes a file
            items = Items(None, {}, side)  # nor is one a generator
            serve(connection, entries_of(_app().requests.values()), side, results, items)
        side.close()
    caller.close()
    connection.close()


def _app() -> App:
    app = App("rehearsal")

    @app.request()
    def plain(ctx: Context, value: int = 0) -> dict[str, int]:
        """Return the argument, or raise."""
        if value < 0:
            raise ValueError(value)
        for _ in ctx.progress((), message="rehearsal"):
            pass
        return {"value": value}

    @app.request()
    async def asynchronous(ctx: Context, value: int = 0) -> dict[str, int]:
        """The same on a loop."""
        return plain.definition.function(ctx, value)  # type: ignore[no-any-return]

    return app
