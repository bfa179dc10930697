"""The pool: warm services, lent to any thread and any event loop of this process."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from typing import Any, Self, overload

from forebay import _core
from forebay.configuration import find_configuration
from forebay.errors import BrokenError, ClosedError, Error, LimitError
from forebay.pool.lend.acquire import Acquire
from forebay.pool.lend.figures import note_closed, note_opened
from forebay.pool.lend.keeper import start_keeper
from forebay.pool.lend.kind import CommandKind, Kind, PythonKind, spec_of
from forebay.pool.lend.process_id import learn_process
from forebay.pool.lend.record import PythonRecord, Record
from forebay.pool.lend.refill import Refills
from forebay.pool.lend.step import Steps, Until
from forebay.pool.lend.templates import Templates
from forebay.pool.lend.unsettled import DiscardCause, Holding
from forebay.pool.lend.wait import Deadline, LoopWaiter, LoopWaiters
from forebay.pool.programs.backend import ProgramAcquire
from forebay.pool.programs.command import Command
from forebay.pool.service import application
from forebay.pool.service.by_value import Value, Values, made_by_value
from forebay.pool.service.reset import ENDED, Reset
from forebay.pool.service.spec import S, Spec
from forebay.pool.watch.death import KEEPER_WAIT, DeathNotice, LastWords, died_error
from forebay.pool.watch.definitions import Definitions
from forebay.pool.watch.events import Events, Journal
from forebay.pool.watch.follow import LOOK_AGAIN, Follow, NewOutput, Output
from forebay.pool.watch.watched import Watched

_log = logging.getLogger(__name__)

_pools: set[ServicePool] = set()
"""Open pools: closed at exit, forgotten in a forked child."""


class ServicePool:
    """Keeps services warm in processes of their own and lends them.

    Thread-safe; any number of threads and event loops use one pool.
    A process belongs to the pool that started it. It ends with that pool, or with this program,
    however the program ends.
    After `os.fork()` the child's copy is unusable (ConfigError) and the parent's is unaffected.

    Args:
        max_size: services at once, of all kinds together; default: the number of cores.
        max_running: services lent at once; default: all of them.
        min_idle: idle services of each kind that are kept ready, once it has been used; see `warm`.
        spares: processes that each template keeps forked ahead, from its second service on: a start
            then takes a fraction of a fork, at the cost of an idle process of a few MB.
        max_uses: leases that one service serves before it is replaced; 0: any number.
        max_lifetime: seconds, a tenth more or less, after which a service is replaced; 0: never.
        idle_timeout: seconds after which an idle service is ended; 0: never.
        ping_after: a service idle for so many seconds is asked whether it answers before it is
            lent, and replaced where it does not within `reset_timeout`; 0: never.
        canary_every: each service is looked at after every so many leases, for state that one of
            them left in it (see `Service.canary_ignores`); where there is some, the service is
            ended and the finding logged; 0: never.
        leak_after: seconds after which a lease that has not ended is reported, with the place that
            acquired it; 0: none is.
        reset_timeout: seconds that a reset may take before its service is replaced.
        start_timeout: seconds that a start may take before it is given up.
        max_memory: bytes, or text such as "300MB", of private memory above which a service is
            ended once it is idle; default: none.
        name: for messages.

    An argument that is left out comes from the configuration: a variable such as
    `FOREBAY_POOL_MAX_SIZE`, then `[pool]` of `forebay.toml`, then the default.

    Raises:
        ConfigError: a setting is wrong; the message says where it comes from.
    """

    def __init__(
        self,
        *,
        max_size: int | None = None,
        max_running: int | None = None,
        min_idle: int | None = None,
        spares: int | None = None,
        max_uses: int | None = None,
        max_lifetime: str | float | None = None,
        idle_timeout: str | float | None = None,
        ping_after: str | float | None = None,
        canary_every: int | None = None,
        leak_after: str | float | None = None,
        reset_timeout: str | float | None = None,
        start_timeout: str | float | None = None,
        max_memory: str | int | None = None,
        name: str = "default",
    ) -> None:
        given = {
            "pool.max_size": max_size,
            "pool.max_running": max_running,
            "pool.min_idle": min_idle,
            "pool.spares": spares,
            "pool.max_uses": max_uses,
            "pool.max_lifetime": max_lifetime,
            "pool.idle_timeout": idle_timeout,
            "pool.ping_after": ping_after,
            "pool.canary_every": canary_every,
            "pool.leak_after": leak_after,
            "pool.reset_timeout": reset_timeout,
            "pool.start_timeout": start_timeout,
            "pool.max_memory": max_memory,
        }
        self.config = find_configuration(given).pool
        self.name = name
        self._canary_every = self.config.canary_every
        self._reset_ms = int(self.config.reset_timeout * 1000)
        self.core = _core.Pool(
            self.config.max_size,
            max_running=self.config.max_running,
            max_uses=self.config.max_uses,
            lifetime_ms=int(self.config.max_lifetime * 1000),
            ping_after_ms=int(self.config.ping_after * 1000),
        )
        self._lock = threading.Lock()
        """Guards the kinds and the start of the keeper; no thread waits while it holds it."""
        self._kinds: dict[Any, Kind] = {}
        self._templates = Templates(self.core, self.config.spares)
        self._names: list[str] = []
        """The names of the kinds, by their key; also of those that were forgotten."""
        self._values = Values()
        self._definitions = Definitions(self)
        """Of classes that go by value."""
        self._records: dict[int, Record] = {}
        self.watched = Watched(self, self.config.leak_after)
        """Leases that last too long, or that were collected before they were ended."""
        self.journal = Journal(self)
        """The subscribers of events."""
        self._refills = Refills(self)
        self._warm: list[Kind] = []
        """Kinds that are kept ready."""
        self.watchful = self.config.leak_after > 0 or self.journal.logs
        """Whether the pool watches its leases or keeps kinds ready; `attend` does that."""
        self._closed = False
        self._inherited = False
        """Whether this is a forked child's copy of its parent's pool."""
        self._waiters = LoopWaiters(self.core)
        _pools.add(self)
        note_opened(self.core)

    @overload
    def acquire(
        self, what: Command, *, timeout: str | float | None = 30.0, by_value: bool = False
    ) -> ProgramAcquire: ...

    @overload
    def acquire(
        self, what: type[S] | Spec[S], *, timeout: str | float | None = 30.0, by_value: bool = False
    ) -> Acquire[S]: ...

    def acquire(
        self,
        what: type[S] | Spec[S] | Command,
        *,
        timeout: str | float | None = 30.0,
        by_value: bool = False,
    ) -> Acquire[S] | ProgramAcquire:
        """Lend a service for a `with` or `async with` block.

        Args:
            what: a service class, a spec of one, a factory, or a Command.
            timeout: seconds, or text such as "5s", to wait for a service, starting one included;
                None waits for ever.
            by_value: send the class itself, with the variables that its code uses (by
                cloudpickle), where it cannot be imported, as in a notebook. Once a cell has defined
                one of them again, the next acquire uses that, and services of the older definition
                are ended.

        Returns:
            A context manager that gives a proxy of the service; nothing happens before it is
            entered.

        Raises:
            ConfigError: this cannot be a service, or cannot go by value; the message says why.
            LimitError: it is too long to go by value.

        Entering raises DeadlineError (nobody was free in time), RemoteError (the constructor
        raised), DiedError (the service ended before it was ready), ConfigError (its module cannot
        be imported) or ClosedError.

        Cost: one lock, one poll and one compare-and-swap when a service is idle.
        """
        # A program may change under its name, so a Command is looked at each time.
        kind = None if by_value or type(what) is Command else self._kinds.get(what)
        kind = kind or self._kind_of(what, by_value=by_value)
        return kind.acquires(self, kind, timeout)

    def warm(
        self, what: type[S] | Spec[S] | Command, min_idle: int = 1, *, by_value: bool = False
    ) -> None:
        """Keep `min_idle` idle services of a kind ready from now on; 0: no longer.

        It returns at once: services start in the background, as far as `max_size` has room, and
        those that are taken or end are replaced. An acquire that comes earlier waits for them.
        `by_value`: as of `acquire`; a class that is defined again is kept ready by another call.

        Raises:
            ConfigError: this cannot be a service.
            LimitError: `min_idle` is above `max_size`.
        """
        if min_idle > self.config.max_size:
            raise LimitError(
                f"pool {self.name!r}: min_idle {min_idle} is above max_size "
                f"{self.config.max_size}; raise max_size",
                limit=self.config.max_size,
                value=min_idle,
            )
        self._keep(self._kind_of(what, by_value=by_value), min_idle)
        self.refill()

    def stats(self) -> dict[str, Any]:
        """Sizes and counters.

        Now: max_size, max_running, live (services that count against max_size), idle, settling
        (being reset, or started ahead), leased, starting, waiters.
        Since the pool was made: starts, leases, waits (callers that had to wait), resets, leaks,
        and deaths by cause.
        """
        return {
            "max_size": self.config.max_size,
            "max_running": self.config.max_running,
            **dict(self.core.stats()),
            "leaks": self.watched.leaks,
            "deaths": dict(self.core.deaths()),
        }

    def services(self) -> list[dict[str, Any]]:
        """Every service that lives, copies included.

        Each is a dict: slot, pid (0: not known yet), name, state ("starting", "leased" or "idle"),
        holder (this process's id, 0: none) and age_s, the seconds that its lease has lasted so far.
        """
        self.core.drive()
        return [
            {
                "slot": slot,
                "pid": pid,
                "name": self.kind_name(key),
                "state": "idle" if not lent else "leased" if pid else "starting",
                "holder": os.getpid() if lent else 0,
                "age_s": held_ms / 1000,
            }
            for slot, _, pid, lent, key, held_ms in self.core.services()
        ]

    def events(self) -> Events:
        """What happens to the services from now on, as a stream: a context manager.

        With `logging` at DEBUG for `forebay.pool.events` when the pool is made, it is logged too.
        """
        return Events(self.journal)

    def close(self, timeout: float = 5.0) -> None:
        """End every service and wait at most `timeout` seconds for them to be gone. Idempotent."""
        if not self._closed:
            self.journal.close()
            note_closed(self.core)
        self._closed = True
        self.core.close(timeout)
        _pools.discard(self)
        with self._lock:
            records = list(self._records.values())
            self._records.clear()
        for record in records:
            record.close()

    async def aclose(self, timeout: float = 5.0) -> None:
        """The same without blocking the event loop. Cancellation: the services end all the same."""
        import asyncio

        await asyncio.to_thread(self.close, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<ServicePool {self.name!r}, at most {self.config.max_size} services>"

    def _repr_html_(self) -> str:
        from forebay.pool.watch.shown import pool_table

        return pool_table(self)

    # What follows is for the modules of this package.

    def attend(self, record: Record) -> None:
        """Do what a new lease needs in a pool that keeps kinds ready or watches its leases."""
        self.watched.note(record)
        self._collect()
        self._refills.thrive(record.kind)
        self.refill()

    def look(self) -> None:
        """Report leases that last too long, and end lost ones."""
        self.watched.look()
        self._collect()

    def lost(self, record: Record) -> None:
        """Note that an open lease was collected. The collector may call this at any moment."""
        self.watched.lose(record)
        self.watchful = True

    def holdings(self) -> list[Holding]:
        """What is leased now."""
        return [
            Holding((slot, generation), pid, self.kind_name(key), held_ms / 1000)
            for slot, generation, pid, lent, key, held_ms in self.core.services()
            if lent
        ]

    @property
    def reset_timeout(self) -> float:
        """Seconds that a service may take for a reset, or to say that it answers."""
        return self.config.reset_timeout

    def is_over(self) -> bool:
        """Whether no further try can get a service: never, since another keeper is started."""
        return False

    def stop_keeping(self, kind: Kind) -> None:
        """Keep no idle services of a kind ready any more."""
        if kind in self._warm:
            self._keep(kind, 0)

    def forget(self, kinds: list[Kind]) -> None:
        """Drop kinds that have no services and were replaced: their pickles may be long."""
        with self._lock:
            self._kinds = {key: kind for key, kind in self._kinds.items() if kind not in kinds}

    def refill(self) -> None:
        """Start what is missing of the kinds that are kept ready, and leave it to settle."""
        for kind in self._warm:
            self._refills.fill(kind)

    def start(self, kind: Kind, handle: _core.Handle) -> Record:
        """Have a service started, after the keeper and the template if these do not run."""
        start_ms = int(self.config.start_timeout * 1000)
        idle_ms = int(self.config.idle_timeout * 1000)
        try:
            with self._lock:
                self._close_forsaken()
                self._prepare(kind)
            record = kind.start(
                self.core,
                handle,
                start_ms=start_ms,
                idle_ms=idle_ms,
                private_bytes_max=self.config.max_memory,
            )
        except BaseException:
            self.core.discard(handle)
            raise
        with self._lock:
            self._records[handle.slot] = record
        return record

    def kind_name(self, key: int) -> str:
        """The name of a kind, for a message."""
        return self._names[key]

    def learn_process(self, record: Record, deadline: Deadline) -> Steps[None]:
        """Wait until the process of a service that has answered its start is known, and lend it."""
        yield from learn_process(self.core, record, deadline)

    def branch(self, record: PythonRecord, deadline: Deadline) -> Steps[PythonRecord]:
        """Have a lent service copied; its holder tells it to fork."""
        yield from ()  # the core has the copy ordered at once
        start_ms = int(self.config.start_timeout * 1000)
        copied = record.kind.copies.branch(self.core, record.handle, start_ms=start_ms)
        with self._lock:
            self._records[copied.handle.slot] = copied
        return copied

    def taken(self, handle: _core.Handle) -> Record:
        """The record of a service under its new lease."""
        record = self._records[handle.slot]
        record.handle = handle  # every call of the lease carries its generation
        return record

    def give_back(self, record: Record, dirty: bool) -> None:
        """End a lease: give the service back, after a reset if it has one, or have it ended."""
        if self._inherited:
            return  # a forked child leaves the `with` block too, but only its parent ends the lease
        try:
            if record.kind.max_leases > 1 and self.core.release_shared(record.handle, dirty):
                return  # others hold it too
            self._end_last(record, dirty)
        except BrokenError:
            self.discard(record)
        except ClosedError:
            record.close()  # the pool was closed meanwhile, and the service ended with it
        if self._definitions.has_replaced:
            with contextlib.suppress(BrokenError, ClosedError):  # they have ended with it
                self._definitions.end_replaced()

    def _end_last(self, record: Record, dirty: bool) -> None:
        """Give a service back whose last lease has ended, or have it ended."""
        resets = record.kind.resets
        try:
            if dirty or resets in ENDED or record.kind.is_replaced or not record.idle():
                self.discard(record, "discarded" if dirty or not record.idle() else "returned")
            elif self._canary_every and isinstance(record, PythonRecord):
                self._release_checked(record, self._canary_every)
            elif resets is Reset.METHOD and isinstance(record, PythonRecord):
                record.begin_reset()
                self.core.release(record.handle, self._reset_ms)
            else:
                self._release(record)
        except (BrokenError, ClosedError):
            raise
        except BaseException:
            with contextlib.suppress(Error):  # it was given back before
                self.core.discard(record.handle)
                record.close()
            raise

    def _release_checked(self, record: PythonRecord, every: int) -> None:
        """Give a service back; every `every`th time it looks for state that a lease left in it."""
        record.returns += 1
        check = record.returns % every == 0
        if check or record.kind.resets is Reset.METHOD:
            record.begin_reset(check=check)
            self.core.release(record.handle, self._reset_ms)
        else:
            self._release(record)

    def _release(self, record: Record) -> None:
        """Give a service back that is not reset.

        A service that still has to close a stream gets the time of a reset for it.
        """
        if isinstance(record, PythonRecord) and record.runs_stream():
            record.begin_settling()
            self.core.release(record.handle, self._reset_ms)
        else:
            self.core.release(record.handle)

    def discard(self, record: Record, cause: DiscardCause = "discarded") -> None:
        """Have a service ended; its successor may start at once."""
        try:
            self.core.discard(record.handle, cause)
        except ClosedError:
            pass  # it ended with the pool
        finally:
            record.close()
        if self._warm and not self._closed:
            self.refill()

    def abandon(self, record: Record) -> None:
        """Leave a service that is starting to the next caller."""
        record.idle()  # no loop watches it any more
        try:
            # What has been read from its socket already will not report it ready to the core.
            answered = record.answered()
        except (Error, OSError):
            self.discard(record)  # this caller has left, and the next one starts another
            return
        try:
            self.core.abandon(record.handle, answered)
        except ClosedError:
            record.close()

    def explain(
        self, handle: _core.Handle, name: str, error: BaseException
    ) -> Steps[BaseException]:
        """Why a service broke: its death if the keeper reports it in time, else `error`."""
        notice = DeathNotice(self.core, handle)
        yield Until(notice.found, Deadline(KEEPER_WAIT))
        return error if notice.told is None else died_error(name, notice.told)

    def output(self, handle: _core.Handle) -> Steps[str]:
        """The last output of a service."""
        self.core.ask_output(handle)
        words = LastWords(self.core, handle)
        yield Until(words.found, Deadline(KEEPER_WAIT))
        if words.told is None:
            raise BrokenError(
                f"pool {self.name!r}: its keeper did not answer within {KEEPER_WAIT:g} s"
            )
        return words.told.decode(errors="replace")

    def follow(self, handle: _core.Handle) -> Follow:
        """The lines of a service, as it writes them."""
        return Follow(self, handle)

    def written(self, handle: _core.Handle, seen: int) -> Steps[Output]:
        """What a service wrote beyond the bytes that were seen, once there is some."""
        output = NewOutput(self.core, handle, seen)
        self.core.follow(handle, seen)
        yield Until(output.found, Deadline(LOOK_AGAIN))
        return output.told

    def directory(self, handle: _core.Handle) -> Steps[str]:
        """The directory of a service."""
        yield from ()  # it is known
        return self.core.directory(handle)

    def waiter(self) -> LoopWaiter:
        """The waiter of the running event loop."""
        return self._waiters.here()

    def _kind_of(self, what: Any, *, by_value: bool) -> Kind:
        application.refuse_in_template()
        spec = spec_of(what)
        value = self._values.of(spec.service) if by_value and isinstance(spec, Spec) else None
        with self._lock:
            # A class that is sent by value may be defined again under its name.
            key = (spec.key, None if value is None else value.data)
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = self._new_kind(spec, value)
                self._names.append(kind.name)
                if kind.max_leases > 1:
                    self.core.share(kind.key, kind.max_leases)
                if self.config.min_idle:
                    self._keep(kind, self.config.min_idle)
            if not by_value and not isinstance(what, Command):
                self._kinds[what] = kind
        if value is not None:
            self._definitions.use(kind, value)
        return kind

    def _new_kind(self, spec: Spec[Any] | Command, value: Value | None) -> Kind:
        number = len(self._names)
        if isinstance(spec, Command):
            return CommandKind(number, spec)
        imported = application.application_of(spec.service, by_value=value is not None)
        make: tuple[Any, bytes] = (application.reference_of(spec.service), spec.arguments)
        if value is not None:
            make = made_by_value(value, spec.args, spec.kwargs)
        per_lease = spec.resets is Reset.FORK
        template = self._templates.number(imported, make if per_lease else None)
        canary = self.config.canary_every > 0
        return PythonKind(number, spec, make, template, canary=canary)

    def _collect(self) -> None:
        if self.journal.logs:
            self.journal.collect()

    def _keep(self, kind: Kind, min_idle: int) -> None:
        self.core.keep(kind.key, min_idle)
        kept = [other for other in self._warm if other is not kind]
        self._warm = [*kept, kind] if min_idle else kept
        self.watchful = True

    def _prepare(self, kind: Kind) -> None:
        """Start a keeper if none runs, and describe the kind's template to a new one."""
        epoch = self.core.epoch()
        if epoch == 0:
            process = start_keeper(self.core)
            epoch = self.core.epoch() if process is None else self.core.attach(process)
        if isinstance(kind, PythonKind):
            self._templates.describe(kind.template, epoch)

    def _close_forsaken(self) -> None:
        """Close what is kept for services that ended while nobody held them."""
        for handle in self.core.dead_idle():
            record = self._records.get(handle.slot)
            if record is not None and record.handle.generation == handle.generation:
                del self._records[handle.slot]
                record.close()


def close_all() -> None:
    """At the interpreter's exit: end every service of this process."""
    for pool in list(_pools):
        pool.close()


def forget_all() -> None:
    """In a forked child: the pools are the parent's."""
    for pool in _pools:
        pool.core.forked()
        pool._lock = threading.Lock()  # another thread may have held it
        pool._waiters.forked()
        pool.journal.forked()
        pool._inherited = True
    _pools.clear()


# Here rather than beside the default pool, so that any pool has them.
os.register_at_fork(after_in_child=forget_all)
atexit.register(close_all)
