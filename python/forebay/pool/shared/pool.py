"""The shared pool in a program: used as a `ServicePool`, with services of another process."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Self, overload

from forebay._steps import block
from forebay.errors import ClosedError, ConfigError, LimitError
from forebay.pool.lend.kind import spec_of
from forebay.pool.programs.command import Command
from forebay.pool.service import application
from forebay.pool.service.spec import S, Spec
from forebay.pool.shared.acquire import SharedAcquire
from forebay.pool.shared.events import SharedJournal
from forebay.pool.shared.kind import SharedCommandKind, SharedKind, shared_kind
from forebay.pool.shared.link import Answer, Link, status_of
from forebay.pool.shared.path import shared_path
from forebay.pool.shared.refill import Refill
from forebay.pool.watch.events import Events

_pools: weakref.WeakSet[SharedPool] = weakref.WeakSet()


class SharedPool:
    """Services that `forebay serve` keeps warm for all programs of one user.

    A service is lent to one program at a time, by its connected socket: calls go straight to it.
    Leases of that program share it, if its class allows that (`max_leases`).
    A service ends with the program that holds it, however that program ends.
    Programs share services whose class, source file, arguments, interpreter, import path, working
    directory and environment are the same.
    Thread-safe; any number of threads and event loops use one pool.
    Connects on first use, and again after the lender was started again.
    After `os.fork()` the child's copy is unusable (ConfigError) and the parent's is unaffected.

    Args:
        path: the lender's socket; default: `FOREBAY_POOL_PATH`, else the usual one of this user.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = shared_path(path)
        self.name = f"shared, at {self.path}"
        """For messages."""
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._kinds: dict[Any, SharedKind | SharedCommandKind] = {}
        self._refills: dict[bytes, Refill] = {}
        """Kinds that are kept ready, by their digest."""
        self._closed = False
        self._owner = os.getpid()
        _pools.add(self)

    @overload
    def acquire(
        self, what: Command, *, timeout: str | float | None = 30.0, by_value: bool = False
    ) -> SharedAcquire[Any]: ...

    @overload
    def acquire(
        self, what: type[S] | Spec[S], *, timeout: str | float | None = 30.0, by_value: bool = False
    ) -> SharedAcquire[S]: ...

    def acquire(
        self,
        what: type[S] | Spec[S] | Command,
        *,
        timeout: str | float | None = 30.0,
        by_value: bool = False,
    ) -> SharedAcquire[Any]:
        """Lend a service for a `with` or `async with` block, as `ServicePool.acquire` does.

        Raises:
            ConfigError: this cannot be a service; the message says why.

        Entering also raises BrokenError (no lender listens) and LimitError (this program holds or
        asks for too many).

        Cost: one round trip to the lender when a service is idle.
        """
        application.refuse_in_template()
        kind = self._kinds.get(what) if isinstance(what, (type, Spec)) and not by_value else None
        kind = kind or self._kind_of(what, by_value=by_value)
        return kind.acquires(self, kind, timeout)

    def warm(
        self, what: type[S] | Spec[S] | Command, min_idle: int = 1, *, by_value: bool = False
    ) -> None:
        """Keep `min_idle` idle services of a kind ready from now on; 0: no longer.

        It waits for the lender's answer alone: the lender says when one is missing, whatever
        program took it, and a thread of this program starts it, until this pool is closed or gone.
        Of several programs, the one that wants most decides on the number.
        `by_value`: as of `acquire`.

        Raises:
            ConfigError: this cannot be a service, or a program that no other program could use.
            LimitError: `min_idle` is above the lender's `max_size`.
        """
        application.refuse_in_template()
        if min_idle < 0:
            raise ConfigError(f"min_idle is {min_idle}; give 0 or more")
        kind = self._kind_of(what, by_value=by_value)
        maximum = self.stats()["max_size"] if min_idle else 0
        if min_idle > maximum:
            raise LimitError(
                f"pool {self.name!r}: min_idle {min_idle} is above max_size {maximum}; "
                "restart forebay serve with more: --max-size",
                limit=maximum,
                value=min_idle,
            )
        self._keep(kind, min_idle)

    def stats(self) -> dict[str, Any]:
        """Sizes and counters of the lender.

        As of a `ServicePool`: max_size, max_running, live, idle, settling, leased, starting,
        waiters; since the lender was started: starts, leases, waits, resets, and deaths by cause;
        and leaks of this program.
        Beside them: pid (the lender's), max_leases and max_waiters (of one program), programs, and
        held (services of this program).
        """
        link = self.link()
        answer = self._told(lambda link: link.core.status())
        return {**status_of(answer), "leaks": link.watched.leaks}

    def events(self) -> Events:
        """What happens to the services of all programs from now on: a context manager.

        As `ServicePool.events`.
        """
        return Events(SharedJournal(self))

    def services(self) -> list[dict[str, Any]]:
        """Every service that lives, copies and those of other programs included.

        As `ServicePool.services`; holder is the process that holds it, the state may also be
        "settling", and age_s counts from the last change of hands.
        """
        names = ("slot", "pid", "name", "state", "holder", "age_s")
        found: list[dict[str, Any]] = []
        at = 0

        def question(link: Link) -> int:
            return link.core.services(at)

        while True:
            _, rows, at = self._told(question)
            found += (dict(zip(names, row, strict=True)) for row in rows)
            if not at:
                return found

    def drain(self, name: str = "") -> tuple[int, int]:
        """End the services of a class or program, or all: idle ones now, others once given back.

        Returns:
            How many were ended, and how many will be.
        """
        answer = self._told(lambda link: link.core.drain(os.fsencode(name)))
        return answer[1], answer[2]

    def close(self) -> None:
        """Disconnect; the lender ends what this program holds. Idempotent; never waits."""
        if os.getpid() != self._owner:
            return  # the parent's
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
            refills, self._refills = self._refills, {}
        for refill in refills.values():
            refill.keep(0)
        _pools.discard(self)
        if link is not None:
            link.close()

    async def aclose(self) -> None:
        """The same for an event loop; it never waits."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SharedPool at {self.path}>"

    def _repr_html_(self) -> str:
        from forebay.pool.watch.shown import pool_table

        return pool_table(self)

    # What follows is for the modules of this package.

    def link(self) -> Link:
        """The connection to the lender; a new one if the lender of the last one has ended."""
        link = self._link
        if link is not None and not link.broken:
            return link
        if os.getpid() != self._owner:
            raise ConfigError(
                f"the shared pool was made by process {self._owner}, this is its fork"
                f" {os.getpid()}; make a new SharedPool here"
            )
        with self._lock:
            if self._closed:
                raise ClosedError(f"the shared pool at {self.path} is closed; make a new one")
            if self._link is None or self._link.broken:
                # Not closed: a caller that waits on it gets the error that its lender has ended.
                self._link = None
                self._link = Link(self.path, self.name)
            return self._link

    def keep_as_told(self, kind: SharedKind | SharedCommandKind, min_idle: int) -> None:
        """Keep a kind ready that this program uses, as the lender's setting says."""
        if kind.digest not in self._refills and not kind.is_private:
            self._keep(kind, min_idle)

    def forked(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._lock = threading.Lock()  # another thread may have held it
        self._refills.clear()  # their threads are the parent's
        if self._link is not None:
            self._link.forked()
            self._link = None

    def _told(self, question: Callable[[Link], int]) -> Answer:
        link = self.link()
        return block(link.told(question(link)), link)  # type: ignore[misc]

    def _keep(self, kind: SharedKind | SharedCommandKind, min_idle: int) -> None:
        if min_idle and kind.is_private:
            raise ConfigError(
                f"{kind.name} is kept for the program that starts it, since its client speaks on "
                "its stdin and stdout; it cannot be kept ready for others"
            )
        with self._lock:
            refill = self._refills.get(kind.digest)
            if min_idle == 0:
                self._refills.pop(kind.digest, None)
            elif refill is None and not self._closed:
                self._refills[kind.digest] = Refill(self, kind, min_idle)
        if refill is not None:
            refill.keep(min_idle)

    def _kind_of(self, what: Any, *, by_value: bool) -> SharedKind | SharedCommandKind:
        spec = spec_of(what)
        kind = shared_kind(spec, by_value=by_value)
        # A program may change under its name, so a Command is looked at each time.
        if not by_value and not isinstance(what, Command):
            self._kinds[what] = kind
        return kind


def _forget_all() -> None:
    for pool in list(_pools):
        pool.forked()


os.register_at_fork(after_in_child=_forget_all)
