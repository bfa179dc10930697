"""The executor in `forebay._core`: a stub alone, at run time there is no such module.

Documented in crates/executor/src/dispatcher.
"""

from collections.abc import Sequence
from typing import Any, final

from forebay._core_transport import Connection

def cron_fault(pattern: str) -> str | None: ...

@final
class StoreReader:
    """The store's database, read-only; no database: BrokenError. Any thread, one query at a time.

    Not `sqlite3` in the server's process: two copies of SQLite undo each other's locks there.
    """

    def __new__(cls, directory: str) -> StoreReader: ...
    def query(
        self, sql: str, values: Sequence[float | str | bytes | None], rows_max: int
    ) -> list[tuple[Any, ...]]:
        """The rows, at most `rows_max`; `values` are those of its question marks."""

@final
class Dispatcher:
    """Queues requests, gives them to workers. Any thread; waits let go of the GIL; None: no end."""

    def __new__(cls, settings: dict[str, Any]) -> Dispatcher: ...
    def submit(self, name: str, arguments: bytes, options: bytes | None = None) -> int:
        """Submit a request of this process; returns its ticket, see `finished`."""
    def finished(self, timeout: float | None) -> list[tuple[int, int, bytes]] | None:
        """(ticket, end, payload): 0 result, 1 what was raised, 2 a failure's JSON, 3 cancelled."""
    def cancel(self, ticket: int) -> bool:
        """Cancel what has not begun: true, and `finished` does not tell of it."""
    def install(self, manifest: bytes) -> None:
        """Check submissions against this code from now on; what waited for it is taken."""
    def hold(self, reason: str | None) -> None:
        """Dispatch nothing and refuse submissions for this reason; None: go on."""
    def watch_sources(self, paths: list[str]) -> None:
        """Order ("sources", paths) when one of these files changes."""
    def orders(self, timeout: float | None) -> list[tuple[Any, ...]] | None:
        """What the crew is to do; None once closed."""
    def orders_fileno(self) -> int:
        """Readable while `orders` would return at once; stays the dispatcher's."""
    def worker_ready(
        self, slot: int, connection: Connection, pid: int, pidfd: int, generation: int = 0
    ) -> None:
        """Hand over a worker that has started; the pidfd is given away, even if this raises."""
    def worker_failed(self, slot: int, reason: str) -> None: ...
    def worker_died(
        self,
        slot: int,
        cause: str,
        pid: int,
        exit_code: int | None,
        signal: int | None,
        peak_bytes: int | None,
        limit_bytes: int | None,
        last_output: str,
    ) -> None: ...
    def calls(self, timeout: float | None) -> list[tuple[int, str, bytes, str]] | None:
        """(ticket, method, arguments in msgpack, who asks) for the main thread; None: closed."""
    def set_gateway(self, pid: int | None) -> None:
        """Take connections of this process for the gateway's, which may act for others."""
    def audit(self, act: str, by: str, id: int | None, object: str) -> None:
        """Queue a line of the audit log."""
    def calls_fileno(self) -> int:
        """Readable while `calls` would return at once; stays the dispatcher's."""
    def answer(self, ticket: int, head: bytes) -> None:
        """Answer a call: msgpack of `[0, value]` or `[1, refusal]`."""
    def figures(self) -> dict[str, Any]: ...
    def usage(self) -> dict[str, list[Any]]:
        """What workers use of other systems: "counters", "gauges", "histograms", as of metrics."""
    def workers(self) -> list[dict[str, Any]]: ...
    def why(self, id: int) -> dict[str, Any] | None: ...
    def retry(self, ids: list[int], by: str = "") -> list[dict[str, Any]]:
        """{"id", "status" or "refused"} of each, once that is on disk or cannot be."""
    def prune(self, rule: dict[str, Any]) -> dict[str, int]:
        """By older_s, status (words), ids (numbers), dry_run: {"pruned", "bytes"}."""
    def schedules(self) -> list[dict[str, Any]]: ...
    def set_schedule(self, name: str, paused: bool) -> bool:
        """False: no schedule has that name."""
    def drain(self, timeout: float) -> bool:
        """Dispatch and take nothing more; whether everything that ran has ended in time."""
    def wake(self) -> None:
        """Have every thread that waits in `orders`, `calls` or `finished` return."""
    def close(self) -> None: ...
