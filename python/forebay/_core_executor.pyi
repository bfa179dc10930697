"""The executor in `forebay._core`: a stub alone, at run time there is no such module.

Documented in crates/executor/src/dispatcher.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

from forebay._core_transport import Connection

_Moved = tuple[dict[str, Any], list[int]]
"""The facts of a worker; its connection, its pidfd, its side socket, its output if it has one."""

def cron_fault(pattern: str) -> str | None: ...

@final
class StoreReader:
    """A server's store, read-only; no database: BrokenError. Any thread, one read at a time.

    Not `sqlite3` in the server's process: two copies of SQLite undo each other's locks there.
    Ids are numbers, times milliseconds since 1970, failures JSON; a request is a dict.
    """

    VERSION: ClassVar[int]
    """Of the database that this build writes."""

    def __new__(cls, directory: str) -> StoreReader: ...
    def get(self, id: int) -> dict[str, Any] | None: ...
    def newest(self) -> int | None: ...
    def beginning_with(self, text: str, count_max: int) -> list[int] | None:
        """The newest requests whose ids begin so; None: no id begins so."""
    def page(
        self,
        count_max: int,
        cursor: int | None = None,
        *,
        status: Sequence[str] = (),
        name: str | None = None,
        submitter: str | None = None,
        lane: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        parent: int | None = None,
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Requests behind the cursor, the newest first, and the cursor of the next page.

        With one, a page may have fewer than `count_max`, even none.
        """
    def runs(self, id: int, count_max: int) -> list[dict[str, Any]]:
        """Runs that did not end it, the oldest first; of many, the newest."""
    def deliveries(self, hook: str, count_max: int) -> list[dict[str, Any]]:
        """Calls of a hook that wait, the first due at the front."""
    def waiting(self, hooks: list[str]) -> int:
        """How many calls of these hooks wait; cheap."""
    def outbox(self) -> list[dict[str, Any]]:
        """How many calls wait and were given up, of each hook that has some."""
    def arguments(self, id: int) -> bytes | None: ...
    def options(self, id: int) -> bytes | None:
        """What differs from the defaults, in msgpack."""

@final
class StoreBackup:
    """The database of a backup. Any thread, one call at a time. Ids are numbers."""

    def __new__(cls, directory: str) -> StoreBackup:
        """Open one that is complete, read-only; no database: BrokenError."""
    @staticmethod
    def copy(directory: str, target: str, told: Callable[[int, int], object]) -> StoreBackup:
        """Copy the database of a state directory into a new file, and have the copy for changes.

        `told` gets the bytes that are copied and those of all, after each step; what it raises ends
        the copy, and is raised here. Nothing is synced. A full disk: BrokenError, whose cause is an
        OSError; a database of a later version: ConfigError.
        """
    def contents(self) -> tuple[int, int, int, int | None]:
        """Version, requests, those of them that have not ended, the newest one."""
    def results(self, behind: int, count_max: int) -> list[tuple[int, int]]:
        """Requests whose results are files, with their lengths, the oldest first."""
    def has(self, id: int) -> bool: ...
    def forget(self, ids: Sequence[int]) -> None:
        """Remove these requests."""
    def faults(self) -> list[str]:
        """What SQLite finds wrong with it; empty: it is sound."""

def copy_log(source: str, target: str) -> int:
    """Copy a log with its holes into a new file; returns the length of the copy. OSError."""

def sync_file_system(folder: str) -> None:
    """Have what its file system was given on the disk; BrokenError, whose cause is an OSError."""

@final
class HookOutbox:
    """Calls of hooks, for a dispatcher's setting `hooks`. Any thread; nothing waits for the disk.

    A rule is a hook's name, whether it wants what is dead and what failed, and names of requests.
    What is reported is written later; False: too much waits to be, and this was not taken.
    """

    def __new__(cls, rules: list[tuple[str, bool, bool, list[str]]]) -> HookOutbox: ...
    def add(self, hook: str, event: str, at: int, detail: str) -> bool:
        """A call that no request is the reason of."""
    def answered(self, number: int, token: str) -> bool:
        """Remove a row."""
    def tried(self, number: int, token: str, tries: int, due_at: int | None, error: str) -> bool:
        """A try failed; None: it was the last one."""
    def write(self) -> None:
        """Have the writer try what is not on disk."""
    def reports(self) -> int:
        """How many of these are not on disk."""
    def room(self) -> int:
        """How many more it takes; a commit makes room."""
    def dropped(self) -> int:
        """Rows that were too many."""
    def fileno(self) -> int:
        """Readable when rows have changed, until `clear`; stays the outbox's."""
    def clear(self) -> None: ...
    def wake(self) -> None:
        """Make it readable."""

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
    def pause(self, reason: str | None) -> None:
        """Begin nothing for this reason and accept submissions all the same; None: go on."""
    def unmovable(self) -> int:
        """What runs or waits that cannot go over to another server now; 0: everything can."""
    def begin(self) -> None:
        """Serve with the setting `passed`; until then nothing of another server is touched."""
    def give(self, within: float) -> tuple[tuple[int, int], list[_Moved]]:
        """Answer the clients, disconnect them, and close; the clients' socket, the busy workers.

        All descriptors are the caller's. ConfigError: a run cannot go over, or not everything was
        on disk in time, and it goes on. Call `pause` before, and wait until nothing is `unmovable`.
        """
    def cordon(self, by: str, reason: str, dispatches: bool) -> None:
        """Refuse submissions until `uncordon`; what was accepted is dispatched, or waits."""
    def uncordon(self) -> bool:
        """Take submissions again; False: there was no cordon."""
    def watch_sources(self, paths: list[str]) -> None:
        """Order ("sources", paths) when one of these files changes."""
    def orders(self, timeout: float | None) -> list[tuple[Any, ...]] | None:
        """What the crew is to do; None once closed."""
    def orders_fileno(self) -> int:
        """Readable while `orders` would return at once; stays the dispatcher's."""
    def worker_ready(
        self,
        slot: int,
        connection: Connection,
        pid: int,
        pidfd: int,
        generation: int = 0,
        is_measured: bool = True,
    ) -> None:
        """Hand over a worker that has started; the pidfd is given away, even if this raises.

        `is_measured`: its runs are in that process, whose memory is theirs.
        """
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
    def set_capacity(
        self,
        workers_max: int,
        guaranteed: Sequence[int],
        cores_milli: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        """Dispatch for another capacity from now on; None, or less memory: as before."""
    def set_gateway(self, pid: int | None) -> None:
        """Take connections of this process for the gateway's, which may act for others."""
    def audit(self, act: str, by: str, id: int | None, object: str) -> None:
        """Queue a line of the audit log."""
    def calls_fileno(self) -> int:
        """Readable while `calls` would return at once; stays the dispatcher's."""
    def answer(self, ticket: int, head: bytes) -> None:
        """Answer a call: msgpack of `[0, value]` or `[1, refusal]`."""
    def figures(self) -> dict[str, Any]: ...
    def metrics(self) -> dict[str, list[list[Any]]]:
        """Lists of `counters`, `gauges` and `histograms`, see `Admin.metrics`."""
    def note_event(
        self,
        event: str,
        *,
        service: str,
        pid: int,
        cause: str | None = None,
    ) -> None:
        """Append service_leased, service_returned or service_ended to the feed of events."""
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
