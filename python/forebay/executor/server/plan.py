"""What a supervisor works with: orders, the workers to start, the receiver of its reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from forebay.executor.server.worker_group import WorkerGroup, local_group

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool import Spec


class Orders(Protocol):
    """What the supervisor needs of a dispatcher."""

    def orders(self, timeout: float | None) -> list[tuple[Any, ...]] | None:
        """Orders that have come; None once it is closed."""

    def orders_fileno(self) -> int:
        """Readable while there are orders."""

    def install(self, manifest: bytes) -> None:
        """Requests are those of this manifest from now on."""

    def hold(self, reason: str | None) -> None:
        """Dispatch nothing, for this reason; None: go on."""

    def watch_sources(self, paths: list[str]) -> None:
        """Order "sources" when one of these files changes."""

    def worker_ready(
        self,
        slot: int,
        connection: _core.Connection,
        pid: int,
        pidfd: int,
        generation: int,
        is_measured: bool,
    ) -> None:
        """A worker can run requests."""

    def worker_failed(self, slot: int, reason: str) -> None:
        """A worker could not be started."""

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
    ) -> None:
        """How a worker ended; its slot is free."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a supervisor is started with.

    Attributes:
        spec_of: describes a worker; called for each group, so that a changed class is another one.
        side_socket: where workers connect for what does not wait for an answer.
        options: of every worker.
        files: what is watched while nothing else is known of the application.
        reloads: whether a change of the sources is loaded at once, or only told.
        group_of: makes the group of a version: its description, and `start_timeout`.
        loads: whether there is an application with a manifest; `forebay.Executor` has none.
        start_timeout: seconds that a start may take, the import of the application included.
    """

    spec_of: Callable[[], Spec[Any]]
    side_socket: str
    options: dict[str, Any]
    files: tuple[str, ...]
    reloads: bool
    group_of: Callable[[Spec[Any], float], WorkerGroup] = local_group
    loads: bool = True
    start_timeout: float = 120.0


class Watcher(Protocol):
    """Receives what the supervisor finds out; called in its thread, and returns soon."""

    def loading(self) -> None:
        """The application is imported anew, because somebody asked for it."""

    def loaded(self, manifest: dict[str, Any], text: bytes) -> None:
        """The application was imported; its requests are served. `text` is the manifest's JSON."""

    def unfit(self, reason: str, *, serves: bool) -> None:
        """The application cannot be imported; `serves`: an older version of it goes on."""

    def changed(self, paths: list[str]) -> None:
        """Sources have changed, and are not loaded by themselves."""

    def warmed(self, services: list[tuple[str, list[int]]]) -> None:
        """Services of the application are ready: their names and processes."""

    def idle(self) -> None:
        """Nothing was asked for in a long time."""

    def warned(self, text: str) -> None:
        """The dispatcher has a warning for a person."""

    def rebound(self) -> None:
        """A socket was removed, and was made again."""

    def broken(self, error: BaseException) -> None:
        """The supervisor failed."""
