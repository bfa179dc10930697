"""The service that runs requests: made in the template of an application, forked per worker."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from typing import TYPE_CHECKING, Any

from forebay.executor.app.arena import limit_arena
from forebay.executor.app.load import Kind, find_app, load
from forebay.executor.app.log import write_lines_as
from forebay.executor.app.manifest import manifest_of, to_json
from forebay.executor.app.running import running_request
from forebay.executor.worker.entry import entries_of
from forebay.executor.worker.forks import INTERRUPT_SIGNAL, guard_forks
from forebay.executor.worker.items import Items
from forebay.executor.worker.pool import WorkerPool
from forebay.executor.worker.rehearsal import rehearse
from forebay.executor.worker.results import Results
from forebay.executor.worker.side import Side, redirect_output
from forebay.executor.worker.sync_loop import SyncLoop
from forebay.pool import Reset, Service
from forebay.rpc import current

if TYPE_CHECKING:
    from forebay._core import Connection
    from forebay.executor.app.application import App

_log = logging.getLogger(__name__)

FAULT_EXIT = 70
"""The exit code of a worker that found a fault in itself; EX_SOFTWARE of sysexits(3)."""


class Worker(Service):
    """A worker of an application; a server's supervisor starts it through its pool.

    The constructor runs in the template, where it imports the application, for all workers. Its
    error says why the application cannot be run.

    Args:
        kind: how `target` is read: "module", "path", "main" or "none".
        target: what to import.
        attribute: what stands behind the colon of a TARGET: the App or one of its requests.
        directory: becomes the first of `sys.path` before the import.
    """

    resets = Reset.FORK

    def __init__(
        self,
        kind: Kind,
        target: str,
        attribute: str | None = None,
        directory: str | None = None,
    ) -> None:
        names = load(kind, target, directory)
        self._app: App | None = None
        file = None
        if names is not None and kind in ("module", "path"):
            self._app = find_app(names, attribute, target)
            file = names.get("__file__")
        shown = target if attribute is None else f"{target}:{attribute}"
        self._manifest = to_json(manifest_of(self._app, file, target=shown))
        definitions = [] if self._app is None else list(self._app.requests.values())
        self._entries = entries_of(definitions)
        if any(definition.context is not None for definition in definitions):
            # For all workers, some of which submit children: 10 ms of each, 0.7 MB together.
            import forebay.executor.worker.children  # noqa: F401
        asynchronous = any(definition.is_async for definition in definitions)
        if asynchronous:
            pass  # once, for all of its workers
        rehearse(asynchronous=asynchronous)

    def manifest(self) -> bytes:
        """The application's manifest, as JSON."""
        return self._manifest

    def serve(
        self, slot: int, lane: str, side_path: str, nonce: int, options: dict[str, Any]
    ) -> None:
        """Run requests that come on this connection until the server has ended.

        Args:
            slot: the number of the worker's slot.
            lane: "short", "long" or "async".
            side_path: of the server's side door.
            nonce: shown to the side door.
            options: "pool": path of the lender's socket; "oom_score": for the kernel, 0 to 1000;
                "memory_bytes": the limit of which the arena takes its part; "state": the server's
                state directory, where results above "result_bytes_max" become files,
                and items of generators within the limits "items";
                "log_format": of its own log lines; "clients": path of the server's socket for
                clients, where the children of its runs are submitted; "environment": variables
                that are set for it.

        Raises:
            SystemExit: the server told it to end, or SIGTERM came while a request ran.
        """
        try:
            self._serve(current()._connection, slot, lane, side_path, nonce, options)
        except Exception:
            # A fault of ours, or of a message of the server: this process cannot go on.
            _log.exception("worker %d cannot go on", slot)
            raise SystemExit(FAULT_EXIT) from None

    def _redirect_output(self) -> int:
        """Make a new pipe for the output of this process; its read end, which the caller closes."""
        return redirect_output()

    def warm(self, pool: str) -> list[tuple[str, list[int]]]:
        """Have the services of the application started in the server's pool.

        Args:
            pool: path of the lender's socket.

        Returns:
            Name of each service, and the process ids of those that are ready.
        """
        from forebay.executor.app.warm import warm

        return warm([] if self._app is None else self._app.services, pool)

    def _serve(
        self,
        connection: Connection,
        slot: int,
        lane: str,
        side_path: str,
        nonce: int,
        options: dict[str, Any],
    ) -> None:
        guard_forks()
        os.environ.update(options.get("environment", {}))
        for number in (signal.SIGTERM, INTERRUPT_SIGNAL):
            signal.signal(number, signal.SIG_IGN)  # until the loop has handlers for them
        reading = self._redirect_output()
        side = Side.connect(side_path, slot, nonce, reading)
        os.close(reading)
        _prefer_as_victim(options.get("oom_score", 0))
        limit_arena(options.get("memory_bytes"))
        pool = WorkerPool(options["pool"]) if options.get("pool") else None
        if pool is not None:
            pool.install()
        results = Results(options.get("state"), options.get("result_bytes_max", 0))
        items = Items(options.get("state"), options.get("items", {}), side)
        log_format, clients = options.get("log_format"), options.get("clients")
        if lane == "async":
            from forebay.executor.worker.async_loop import serve_async

            serve_async(connection, self._entries, side, results, items, log_format, clients)
        else:
            loop = SyncLoop(connection, self._entries, side, pool, results, items, clients)
            write_lines_as(log_format, running_request)
            loop.run()


def _prefer_as_victim(score: int) -> None:
    """Have the kernel end this process before the server if memory runs out."""
    if score:
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score))
