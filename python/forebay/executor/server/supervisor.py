"""The supervisor: the thread that starts and ends workers, as the dispatcher orders.

It polls the dispatcher's orders, the keepers of its worker groups and the sockets of workers that
start; it never waits for one of them alone, so thirty starts take as long as their forks.
A *worker group* holds the workers of one version of the application. A reload makes another group;
the old one is closed once its workers have ended.

The dispatcher decides; the supervisor carries out and reports the outcome:

| order | what the supervisor does |
|---|---|
| start | fork a worker; hand its connection over when it is ready, or report why it never was |
| stop | the worker was asked to leave; if it does not, have the keeper end it |
| died | ask the keeper how the worker ended, and report that |
| expelled | log it; the worker's death follows |
| sources | load the changed application into a new group |
| idle | notify the server |
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from forebay.errors import DiedError, Error
from forebay.executor.app.blame import without_own_lines
from forebay.executor.app.sources import code_of
from forebay.executor.server.job import Job
from forebay.executor.server.oom import OomKills
from forebay.executor.server.worker_group import Death, Worker, WorkerGroup
from forebay.pool._internal import BLAMELESS, TRIES

if TYPE_CHECKING:
    from forebay.executor.server.loading import Loaded
    from forebay.executor.server.plan import Orders, Plan, Watcher

LEAVE_S = 2.0
"""Seconds that a worker which was asked to leave may take before the keeper ends it."""

LOADS_MAX = 3
"""Imports in a row whose keeper or template ended, before the application is reported as unfit."""

LOAD_PAUSE_MAX_S = 30.0
"""Longest pause before such an import is tried again."""

PAUSE_MS = 200
"""Longest sleep of the supervisor while it waits for a report of a keeper."""

_log = logging.getLogger(__name__)

Report = Callable[[int, Death], None]
"""Is told the slot of a kept worker, and how it ended."""


class Moved(Protocol):
    """Workers of this dispatcher that another supervisor has started."""

    def stop(self, slot: int) -> None:
        """It was asked to leave: make sure that it does."""


@dataclass(slots=True)
class _Slot:
    """A slot of the dispatcher's worker table, and the worker in it."""

    number: int
    lane: str
    nonce: int
    group: WorkerGroup
    worker: Worker
    leave_by: float | None = None
    tries: int = 1


@dataclass(slots=True)
class _Slots:
    """The slots that hold a worker, by the state of that worker."""

    filled: dict[int, _Slot] = field(default_factory=dict)
    starting: dict[int, _Slot] = field(default_factory=dict)
    """Those of `filled` whose worker is not ready, by their number."""
    dying: dict[int, _Slot] = field(default_factory=dict)
    """Those of `filled` whose worker has ended."""
    failed: list[_Slot] = field(default_factory=list)
    """Those whose start failed, until the keeper has reported why."""


class Supervisor:
    """Starts and ends workers in a thread of its own, from `start` until `close`.

    Args:
        dispatcher: gives the orders.
        plan: what it starts.
        watcher: gets what it finds out.
        loaded: the application, where it was imported before; it is taken.
        moved: workers of the dispatcher that another supervisor has started.
    """

    def __init__(
        self,
        dispatcher: Orders,
        plan: Plan,
        watcher: Watcher,
        loaded: Loaded | None = None,
        moved: Moved | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._loaded = loaded
        self._moved = moved
        self._keeps = False
        self._kept: tuple[set[int], Report] | None = None
        """Slots whose workers another server has, and who is told of their ends."""
        self._to_stop: set[int] = set()
        """Of these, those that were asked to leave."""
        self._plan = plan
        self._watcher = watcher
        self._poll = select.poll()
        self._polled: dict[int, Worker] = {}
        """The sockets that are polled."""
        self._slots = _Slots()
        self._oom_kills = OomKills()
        self._group: WorkerGroup | None = None
        """The group that starts workers; None until the first import begins."""
        self._next: WorkerGroup | None = None
        """The group of a version that is being loaded while another one serves."""
        self._old: list[WorkerGroup] = []
        self._jobs: list[Job] = []
        self._files = list(plan.files)
        """What is watched: the sources, as far as they are known."""
        self._code = ""
        """Hash of the files at the start of the last import."""
        self._failed_loads = 0
        """Imports in a row that failed without a fault of the application."""
        self._load_at: float | None = None
        """When the next is tried, in monotonic seconds."""
        self._requested: set[str] = set()
        """What other threads asked for: "reload", "warm"."""
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="forebay-supervisor")

    def start(self) -> None:
        """Begin with the import of the application."""
        self._thread.start()

    def reload(self) -> None:
        """Import the application anew; from any thread, returns at once."""
        self._request("reload")

    def warm(self) -> None:
        """Start services of the application that are missing; from any thread, returns at once."""
        self._request("warm")

    def pids(self) -> dict[int, int]:
        """Processes of the workers that are ready, by their slot; from any thread."""
        slots = list(self._slots.filled.values())  # one step: the thread goes on meanwhile
        # On an engine one that starts has the process of its stand-in.
        starting = self._slots.starting
        return {
            slot.number: slot.worker.pid
            for slot in slots
            if slot.worker.pid and slot.number not in starting
        }

    def keep(self, keeps: bool) -> None:
        """Whether workers live on after the end of the dispatcher, until `keep_until_ended`."""
        self._keeps = keeps

    def keep_until_ended(self, slots: set[int], report: Report) -> None:
        """Keep these workers, which another dispatcher has; then end by itself.

        Args:
            slots: where they are here.
            report: told of each of their ends, in this supervisor's thread.
        """
        self._kept = set(slots), report
        self._request("kept")

    def stop_kept(self, number: int) -> None:
        """Make sure that a kept worker leaves, which was asked to."""
        self._to_stop.add(number)
        self._request("kept")

    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def _request(self, what: str) -> None:
        self._requested.add(what)
        with contextlib.suppress(BlockingIOError):  # the pipe is full: the supervisor is awake
            os.write(self._woken, b"w")

    def close(self) -> None:
        """End every worker, template and keeper, and wait for them. Idempotent."""
        self._ending = True
        if self._woken >= 0:
            self._request("end")
        if self._thread.is_alive():
            self._thread.join()
        wake, self._wake, self._woken = (self._wake, self._woken), -1, -1
        for descriptor in wake:
            if descriptor >= 0:
                os.close(descriptor)

    # The thread.

    def _run(self) -> None:
        try:
            self._poll.register(self._dispatcher.orders_fileno(), select.POLLIN)
            self._poll.register(self._wake, select.POLLIN)
            if self._loaded is None:
                self._begin_load()
            else:
                self._adopt(self._loaded)
            while not self._ending and self._turn():
                pass
            if self._keeps and not self._ending:
                self._keep()
        except BaseException as error:  # a thread's last boundary: the server is notified
            _log.exception("the supervisor failed")
            self._watcher.broken(error)
        finally:
            self._close_groups()

    def _turn(self) -> bool:
        """Sleep until something happens, and do what is to be done; False at the end."""
        self._poll.poll(self._pause_ms())
        self._drain_wake()
        orders = self._dispatcher.orders(0)
        if orders is None:
            return False
        for group in self._groups():
            group.drive()
        for order in orders:
            self._handle(order)
        self._do_requested()
        self._advance_jobs()
        for slot in list(self._slots.starting.values()):
            self._advance(slot)
        self._report_failures()
        self._report_deaths()
        self._end_overdue()
        self._close_old()
        return True

    def _keep(self) -> None:
        """Report how kept workers end, until none is left."""
        self._poll.unregister(self._dispatcher.orders_fileno())
        for job in self._jobs:
            self._leave(job)
        self._jobs.clear()
        for slot in list(self._slots.starting.values()):
            self._forget(slot)
        while not self._ending:
            for group in self._groups():
                group.drive()
            while self._to_stop:
                leaving = self._slots.filled.get(self._to_stop.pop())
                if leaving is not None and leaving.leave_by is None:
                    leaving.leave_by = time.monotonic() + LEAVE_S
            self._end_overdue()
            if self._kept is not None:
                if not self._report_kept(*self._kept):
                    return
                self._close_unused(self._kept[0])
            self._poll.poll(PAUSE_MS)
            self._drain_wake()

    def _close_unused(self, slots: set[int]) -> None:
        """Close groups, with their templates, that have none of these workers."""
        for number, slot in list(self._slots.filled.items()):
            if number not in slots:
                self._forget(slot)
        kept = [slot.group for slot in self._slots.filled.values()]
        for group in self._groups():
            if group not in kept:
                self._close(group)
        self._group, self._next, self._old = None, None, [*dict.fromkeys(kept)]

    def _report_kept(self, slots: set[int], report: Report) -> bool:
        """Report the ends of kept workers; whether any is left."""
        for number in list(slots):
            slot = self._slots.filled.get(number)
            death = None if slot is None else slot.group.ended(slot.worker)
            if slot is not None and death is not None:
                self._forget(slot)
                report(number, self._attributed(death, slot.group))
            if slot is None or death is not None:
                slots.discard(number)
        return bool(slots)

    def _pause_ms(self) -> int | None:
        """How long nothing may come before something is due; None: for ever."""
        if self._slots.failed or self._slots.dying or self._jobs:
            return PAUSE_MS  # the keeper has a limited time to report
        if any(slot.worker.is_unreported for slot in self._slots.starting.values()):
            return PAUSE_MS  # another question to the pool may have taken the report in
        due = [slot.leave_by for slot in self._slots.filled.values() if slot.leave_by is not None]
        if self._load_at is not None:
            due.append(self._load_at)
        if not due:
            return None
        return max(0, int((min(due) - time.monotonic()) * 1000) + 1)

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 64):
                pass

    def _do_requested(self) -> None:
        """Begin an import that is due, and do what other threads asked for."""
        if self._load_at is not None and time.monotonic() >= self._load_at:
            self._begin_load()
        while self._requested:
            request = self._requested.pop()
            if request == "reload":
                self._watcher.loading()
                self._begin_load()
            elif request == "warm":
                self._warm_services()

    def _groups(self) -> list[WorkerGroup]:
        return [it for it in (*self._old, self._group, self._next) if it is not None]

    # Orders.

    def _handle(self, order: tuple[Any, ...]) -> None:
        kind = order[0]
        if kind == "start":
            self._begin(*order[1:])
        elif kind == "stop":
            self._stop(order[1])
        elif kind == "died":
            self._died(order[1])
        elif kind == "expelled":
            _log.warning("the worker in slot %d is ended: it outgrew its estimate", order[1])
        elif kind == "sources":
            self._sources(order[1])
        elif kind == "idle":
            self._watcher.idle()
        elif kind == "rebound":
            self._watcher.rebound()
        elif kind == "warn":
            self._watcher.warned(order[1])

    def _begin(self, number: int, lane: str, nonce: int, tries: int = 1) -> None:
        group = self._group
        if group is None:
            self._dispatcher.worker_failed(number, "the first import has not begun")
            return
        try:
            slot = _Slot(number, lane, nonce, group, group.begin(), tries=tries)
        except (Error, OSError) as error:
            self._dispatcher.worker_failed(number, str(error))
            return
        self._slots.filled[number] = self._slots.starting[number] = slot
        self._register(slot.worker)

    def _stop(self, number: int) -> None:
        slot = self._slots.filled.get(number)
        if slot is None:
            if self._moved is not None:
                self._moved.stop(number)
            return
        if number in self._slots.starting:
            self._forget(slot)
            self._dispatcher.worker_failed(number, "it was not needed any more")
        else:
            slot.leave_by = time.monotonic() + LEAVE_S

    def _died(self, number: int) -> None:
        slot = self._slots.filled.get(number)
        if slot is not None:
            self._slots.dying[number] = slot

    def _sources(self, paths: list[str]) -> None:
        if self._plan.reloads:
            self._begin_load()
        else:
            self._watcher.changed(paths)

    # Starts and ends of workers.

    def _advance(self, slot: _Slot) -> None:
        """Hand a worker over as soon as it is ready."""
        try:
            if not (slot.group.advance(slot.worker) and slot.group.place(slot.worker)):
                return
            self._unregister(slot.worker)
            plan = self._plan
            connection, pidfd = slot.group.deploy(
                slot.worker, slot.number, slot.lane, plan.side_socket, slot.nonce, plan.options
            )
        except (Error, OSError):
            self._unregister(slot.worker)
            del self._slots.starting[slot.number]
            self._slots.failed.append(slot)
            return
        del self._slots.starting[slot.number]
        worker, is_measured = slot.worker, slot.group.is_measured(slot.worker)
        started = (worker.pid, pidfd, worker.generation, is_measured)
        self._dispatcher.worker_ready(slot.number, connection, *started)

    def _report_failures(self) -> None:
        """Report why starts failed, as soon as the keeper has said so."""
        for slot in list(self._slots.failed):
            error = slot.group.start_error(slot.worker)
            if error is None:
                continue
            self._slots.failed.remove(slot)
            self._forget(slot)
            blameless = isinstance(error, DiedError) and error.cause in BLAMELESS
            if blameless and slot.tries < TRIES:
                self._begin(slot.number, slot.lane, slot.nonce, slot.tries + 1)
            else:
                self._dispatcher.worker_failed(slot.number, str(error))

    def _report_deaths(self) -> None:
        """Report how workers ended, as soon as the keeper has said so."""
        for slot in list(self._slots.dying.values()):
            death = slot.group.death(slot.worker)
            if death is not None:
                self._forget(slot)
                self._dispatcher.worker_died(slot.number, *self._attributed(death, slot.group))

    def _attributed(self, death: Death, group: WorkerGroup) -> Death:
        """A death with its cause, as far as the kernel has told it of a process of ours."""
        killed = death.signal == signal.SIGKILL and group.owns_workers
        if killed and self._oom_kills.was_killed():
            return death._replace(cause="memory")
        if death.cause == "signal":
            # It counts shared memory too: reported only where memory was the cause.
            return death._replace(peak_bytes=None)
        return death

    def _end_overdue(self) -> None:
        """Have workers ended that were asked to leave and have not."""
        now = time.monotonic()
        for slot in self._slots.filled.values():
            if slot.leave_by is not None and slot.leave_by <= now:
                slot.leave_by = None
                slot.group.end(slot.worker)

    def _forget(self, slot: _Slot) -> None:
        """Free a slot, and let go of its worker."""
        self._unregister(slot.worker)
        for table in (self._slots.filled, self._slots.starting, self._slots.dying):
            table.pop(slot.number, None)
        slot.group.remove(slot.worker)

    # Versions of the application.

    def _adopt(self, loaded: Loaded) -> None:
        """Begin with an application that was imported before."""
        self._group = loaded.group
        self._poll.register(loaded.group.fileno(), select.POLLIN)
        self._code = json.loads(loaded.manifest)["code"]
        self._install(loaded.manifest)

    def _begin_load(self) -> None:
        """Import the application into a new template, and ask its first worker what it is."""
        self._load_at = None
        for job in self._jobs:
            self._leave(job)
        self._jobs.clear()
        plan = self._plan
        self._code = code_of(self._files)
        try:
            group = plan.group_of(plan.spec_of(), plan.start_timeout)
        except (Error, OSError) as error:  # such as that no descriptor is left, for now
            self._failed_load(str(error), temporary=True)
            return
        descriptor = group.fileno()
        self._polled.pop(descriptor, None)  # a worker that has closed it had this number before
        self._poll.register(descriptor, select.POLLIN)
        self._retire_next()
        if self._group is None or plan.reloads:
            self._replace(group)  # workers that are ordered from now on wait for it
        else:
            self._next = group
        if plan.loads:
            self._send(Job(group, "manifest", (), self._install, self._failed_load))

    def _install(self, manifest: bytes) -> None:
        told = json.loads(manifest)
        self._files = told["sources"]
        try:
            self._dispatcher.watch_sources(self._files)
        except OSError as error:  # such as that no descriptor is left, for now
            self._failed_load(str(error), temporary=True)
            return
        if self._plan.reloads and code_of(self._files) != told["code"]:
            self._begin_load()  # changed before it was watched, after it was imported
            return
        try:
            self._dispatcher.install(manifest)
        except Error as error:
            self._report_unfit(str(error))
            return
        if self._next is not None:
            group, self._next = self._next, None
            self._replace(group)
        if self._group is not None:
            self._group.know_code(told["code"])
        self._failed_loads = 0
        self._dispatcher.hold(None)
        self._watcher.loaded(told, manifest)
        self._compare(told["code"])

    def _compare(self, code: str) -> None:
        """Handle changes that were made before the files were watched."""
        if code_of(self._files) != code:
            self._sources(self._files)

    def _failed_load(self, reason: str, temporary: bool) -> None:
        """An import has failed; where that is not the application's fault, it is tried again."""
        if temporary:
            self._failed_loads += 1
            self._load_at = time.monotonic() + min(LOAD_PAUSE_MAX_S, 0.1 * 2.0**self._failed_loads)
            _log.warning("the application was not imported and is tried again: %s", reason)
        if not temporary or self._failed_loads >= LOADS_MAX:
            self._report_unfit(without_own_lines(reason))

    def _report_unfit(self, reason: str) -> None:
        """Hold all dispatching, unless an older version of the application goes on to serve."""
        serves = self._next is not None
        if serves:
            self._retire_next()
        else:
            with contextlib.suppress(OSError):  # without a descriptor nobody sees that it is mended
                self._dispatcher.watch_sources(self._files)
            self._dispatcher.hold(reason)
        self._watcher.unfit(reason, serves=serves)
        self._compare(self._code)

    def _replace(self, group: WorkerGroup) -> None:
        """Start workers in this group from now on; those of the one before run to their end."""
        if self._group is not None:
            self._give_up_unplaced(self._group)
            self._old.append(self._group)
        self._group = group

    def _give_up_unplaced(self, group: WorkerGroup) -> None:
        """Let go of workers that start in a group which never learnt its code: none has a place."""
        if group.can_place:
            return
        for slot in [it for it in self._slots.starting.values() if it.group is group]:
            self._forget(slot)
            self._dispatcher.worker_failed(slot.number, "it was not needed any more")

    def _retire_next(self) -> None:
        group, self._next = self._next, None
        if group is not None:
            self._old.append(group)

    def _warm_services(self) -> None:
        """Have a worker start the services that the application wants ready."""
        if self._group is not None:
            pool = self._plan.options["pool"]
            self._send(Job(self._group, "warm", (pool,), self._watcher.warmed, self._cold))

    def _cold(self, reason: str, temporary: bool) -> None:
        _log.warning("the services of the application cannot be kept ready: %s", reason)

    def _send(self, job: Job) -> None:
        if job.begin():
            self._jobs.append(job)
            self._register(job.worker)

    def _advance_jobs(self) -> None:
        for job in list(self._jobs):
            before = job.worker
            over = job.advance()
            if over or job.worker is not before:
                self._unregister(before)
            if over:
                # A new version, which may have begun meanwhile, has left all of them.
                if job in self._jobs:
                    self._jobs.remove(job)
            elif job.worker is not before:
                self._register(job.worker)

    def _leave(self, job: Job) -> None:
        self._unregister(job.worker)
        job.leave()

    def _close_old(self) -> None:
        """Close groups whose last worker has ended."""
        for group in [it for it in self._old if not it.living]:
            self._old.remove(group)
            self._close(group)

    def _close_groups(self) -> None:
        for job in self._jobs:
            self._leave(job)
        groups, self._group, self._next, self._old = self._groups(), None, None, []
        for group in groups:
            self._close(group)

    def _close(self, group: WorkerGroup) -> None:
        self._poll.unregister(group.fileno())
        group.close(5.0)

    def _register(self, worker: Worker | None) -> None:
        if worker is not None and (descriptor := worker.fileno()) >= 0:
            self._poll.register(descriptor, select.POLLIN)
            self._polled[descriptor] = worker

    def _unregister(self, worker: Worker | None) -> None:
        """Poll a worker's socket no more, unless its number is another one's by now."""
        for descriptor in [at for at, polled in self._polled.items() if polled is worker]:
            del self._polled[descriptor]
            self._poll.unregister(descriptor)
