"""The crew: the thread that starts and ends workers, as the dispatcher orders.

It polls the dispatcher's orders, the keepers of its squads and the sockets of workers that start;
nothing in it waits for one of them alone, so thirty starts take as long as their forks.
A *squad* holds the workers of one version of the application. A reload makes another squad; the
old one is closed once its workers have ended.

The dispatcher decides; the crew does it and tells what came of it:

| order | what is done |
|---|---|
| start | fork a worker; hand its connection over when it is ready, or tell why it never was |
| stop | it was told to leave; where it does not, have the keeper end it |
| died | ask the keeper how it ended, and tell that |
| expelled | log it; its death follows |
| sources | load the changed application into a new squad |
| idle | tell the server |
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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forebay.errors import DiedError, Error
from forebay.executor.app.blame import without_own_lines
from forebay.executor.app.sources import code_of
from forebay.executor.server.errand import Errand
from forebay.executor.server.oom import OomWitness
from forebay.executor.server.squad import Squad, Worker
from forebay.pool._internal import BLAMELESS, TRIES

if TYPE_CHECKING:
    from forebay.executor.server.plan import Orders, Plan, Watcher

LEAVE_S = 2.0
"""Seconds that a worker which was told to leave may take before the keeper ends it."""

PATIENCE = 3
"""Imports in a row whose keeper or template ended, before the application is called unfit."""

LOAD_PAUSE_MAX_S = 30.0
"""Longest pause before such an import is tried again."""

PAUSE_MS = 200
"""Longest sleep of the crew while it waits for a keeper's word."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Post:
    """A place in the dispatcher's table, and who fills it."""

    slot: int
    lane: str
    nonce: int
    squad: Squad
    worker: Worker
    leave_by: float | None = None
    tries: int = 1


@dataclass(slots=True)
class _Books:
    """What the crew keeps account of."""

    posts: dict[int, _Post] = field(default_factory=dict)
    starting: dict[int, _Post] = field(default_factory=dict)
    """Those of `posts` that are not ready, by their slot."""
    dying: dict[int, _Post] = field(default_factory=dict)
    """Those of `posts` whose end was seen."""
    failed: list[_Post] = field(default_factory=list)
    """Those whose start failed, until it is known why."""


class Crew:
    """Starts and ends workers in a thread of its own, from `start` until `close`."""

    def __init__(self, dispatcher: Orders, plan: Plan, watcher: Watcher) -> None:
        self._dispatcher = dispatcher
        self._plan = plan
        self._watcher = watcher
        self._poll = select.poll()
        self._polled: dict[int, Worker] = {}
        """The sockets that are polled."""
        self._books = _Books()
        self._witness = OomWitness()
        self._squad: Squad | None = None
        """Of which workers are started; None until the first import begins."""
        self._next: Squad | None = None
        """Of a version that is being loaded while another one serves on."""
        self._old: list[Squad] = []
        self._errands: list[Errand] = []
        self._files = list(plan.files)
        """What is watched: the sources, as far as they are known."""
        self._code = ""
        """Of the files, when the import began that is under way, or was the last."""
        self._setbacks = 0
        """Imports in a row that failed by nobody's fault."""
        self._load_at: float | None = None
        """When the next is tried, in monotonic seconds."""
        self._wishes: set[str] = set()
        """What other threads asked for: "reload", "warm"."""
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="forebay-crew")

    def start(self) -> None:
        """Begin with the import of the application."""
        self._thread.start()

    def reload(self) -> None:
        """Import the application anew; from any thread, returns at once."""
        self._wish("reload")

    def warm(self) -> None:
        """Start services of the application that are missing; from any thread, returns at once."""
        self._wish("warm")

    def pids(self) -> dict[int, int]:
        """Processes of the workers that are ready, by their place; from any thread."""
        posts = list(self._books.posts.values())  # a copy in one step: the crew goes on meanwhile
        return {post.slot: post.worker.pid for post in posts if post.worker.pid}

    def _wish(self, what: str) -> None:
        self._wishes.add(what)
        with contextlib.suppress(BlockingIOError):  # full of wishes: it is awake
            os.write(self._woken, b"w")

    def close(self) -> None:
        """End every worker, template and keeper, and wait for them. Idempotent."""
        self._ending = True
        if self._woken >= 0:
            self._wish("end")
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
            self._begin_load()
            while not self._ending and self._turn():
                pass
        except BaseException as error:  # a thread's last boundary: who waits for it is told
            _log.exception("the crew has ended by a fault of its own")
            self._watcher.broken(error)
        finally:
            self._close_squads()

    def _turn(self) -> bool:
        """Sleep until something happens, and do what is to be done; False at the end."""
        self._poll.poll(self._pause_ms())
        self._drain_wake()
        orders = self._dispatcher.orders(0)
        if orders is None:
            return False
        for squad in self._squads():
            squad.drive()
        for order in orders:
            self._obey(order)
        self._grant()
        self._advance_errands()
        for post in list(self._books.starting.values()):
            self._advance(post)
        self._tell_failures()
        self._tell_deaths()
        self._end_overdue()
        self._close_old()
        return True

    def _pause_ms(self) -> int | None:
        """How long nothing may come before something is due; None: for ever."""
        if self._books.failed or self._books.dying or self._errands:
            return PAUSE_MS  # the keeper has its time to tell, and no more
        due = [post.leave_by for post in self._books.posts.values() if post.leave_by is not None]
        if self._load_at is not None:
            due.append(self._load_at)
        if not due:
            return None
        return max(0, int((min(due) - time.monotonic()) * 1000) + 1)

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 64):
                pass

    def _grant(self) -> None:
        """Do what is due, and what other threads asked for."""
        if self._load_at is not None and time.monotonic() >= self._load_at:
            self._begin_load()
        while self._wishes:
            wish = self._wishes.pop()
            if wish == "reload":
                self._begin_load()
            elif wish == "warm":
                self._warm_services()

    def _squads(self) -> list[Squad]:
        return [it for it in (*self._old, self._squad, self._next) if it is not None]

    # Orders.

    def _obey(self, order: tuple[Any, ...]) -> None:
        kind = order[0]
        if kind == "start":
            self._begin(*order[1:])
        elif kind == "stop":
            self._stop(order[1])
        elif kind == "died":
            self._died(order[1])
        elif kind == "expelled":
            _log.warning("the worker in place %d is ended: it outgrew its estimate", order[1])
        elif kind == "sources":
            self._sources(order[1])
        elif kind == "idle":
            self._watcher.idle()
        elif kind == "rebound":
            self._watcher.rebound()
        elif kind == "warn":
            self._watcher.warned(order[1])

    def _begin(self, slot: int, lane: str, nonce: int, tries: int = 1) -> None:
        squad = self._squad
        assert squad is not None, "the first import begins before the first order"
        try:
            post = _Post(slot, lane, nonce, squad, squad.begin(), tries=tries)
        except (Error, OSError) as error:
            self._dispatcher.worker_failed(slot, str(error))
            return
        self._books.posts[slot] = self._books.starting[slot] = post
        self._register(post.worker)

    def _stop(self, slot: int) -> None:
        post = self._books.posts.get(slot)
        if post is None:
            return
        if slot in self._books.starting:
            self._forget(post)
            self._dispatcher.worker_failed(slot, "it was not needed any more")
        else:
            post.leave_by = time.monotonic() + LEAVE_S

    def _died(self, slot: int) -> None:
        post = self._books.posts.get(slot)
        if post is not None:
            self._books.dying[slot] = post

    def _sources(self, paths: list[str]) -> None:
        if self._plan.reloads:
            self._begin_load()
        else:
            self._watcher.changed(paths)

    # Starts and ends of workers.

    def _advance(self, post: _Post) -> None:
        """Hand a worker over as soon as it is ready."""
        try:
            if not post.squad.advance(post.worker):
                return
            self._unregister(post.worker)
            plan = self._plan
            connection, pidfd = post.squad.deploy(
                post.worker, post.slot, post.lane, plan.side_socket, post.nonce, plan.options
            )
        except (Error, OSError):
            self._unregister(post.worker)
            del self._books.starting[post.slot]
            self._books.failed.append(post)
            return
        del self._books.starting[post.slot]
        worker = post.worker
        self._dispatcher.worker_ready(post.slot, connection, worker.pid, pidfd, worker.generation)

    def _tell_failures(self) -> None:
        """Tell why starts failed, as soon as the keeper has told it."""
        for post in list(self._books.failed):
            error = post.squad.obituary(post.worker)
            if error is None:
                continue
            self._books.failed.remove(post)
            self._forget(post)
            blameless = isinstance(error, DiedError) and error.cause in BLAMELESS
            if blameless and post.tries < TRIES:
                self._begin(post.slot, post.lane, post.nonce, post.tries + 1)
            else:
                self._dispatcher.worker_failed(post.slot, str(error))

    def _tell_deaths(self) -> None:
        """Tell how workers ended, as soon as the keeper has told it."""
        for post in list(self._books.dying.values()):
            death = post.squad.death(post.worker)
            if death is not None:
                self._forget(post)
                if death.signal == signal.SIGKILL and self._witness.was_killed():
                    death = death._replace(cause="memory")
                elif death.cause == "signal":
                    # It counts what was shared: told only where memory is the matter.
                    death = death._replace(peak_bytes=None)
                self._dispatcher.worker_died(post.slot, *death)

    def _end_overdue(self) -> None:
        """Have workers ended that were told to leave and have not."""
        now = time.monotonic()
        for post in self._books.posts.values():
            if post.leave_by is not None and post.leave_by <= now:
                post.leave_by = None
                post.squad.end(post.worker)

    def _forget(self, post: _Post) -> None:
        """A place is free: let go of who filled it."""
        self._unregister(post.worker)
        for book in (self._books.posts, self._books.starting, self._books.dying):
            book.pop(post.slot, None)
        post.squad.bury(post.worker)

    # Versions of the application.

    def _begin_load(self) -> None:
        """Import the application into a new template, and ask its first worker what it is."""
        self._load_at = None
        for errand in self._errands:
            self._leave(errand)
        self._errands.clear()
        plan = self._plan
        self._code = code_of(self._files)
        squad = Squad(plan.spec_of(), start_timeout=plan.start_timeout, name="workers")
        self._poll.register(squad.fileno(), select.POLLIN)
        self._retire_next()
        if self._squad is None or plan.reloads:
            self._replace(squad)  # workers that are ordered from now on wait for it
        else:
            self._next = squad
        if plan.loads:
            self._send(Errand(squad, "manifest", (), self._install, self._failed_load))

    def _install(self, manifest: bytes) -> None:
        told = json.loads(manifest)
        self._files = told["sources"]
        self._dispatcher.watch_sources(self._files)
        if self._plan.reloads and code_of(self._files) != told["code"]:
            self._begin_load()  # changed before it was watched, after it was imported
            return
        try:
            self._dispatcher.install(manifest)
        except Error as error:
            self._tell_unfit(str(error))
            return
        if self._next is not None:
            squad, self._next = self._next, None
            self._replace(squad)
        self._setbacks = 0
        self._dispatcher.hold(None)
        self._watcher.loaded(told, manifest)
        self._compare(told["code"])

    def _compare(self, code: str) -> None:
        """See to what was changed before it was watched."""
        if code_of(self._files) != code:
            self._sources(self._files)

    def _failed_load(self, reason: str, temporary: bool) -> None:
        """An import has failed; where that is not the application's fault, it is tried again."""
        if temporary:
            self._setbacks += 1
            self._load_at = time.monotonic() + min(LOAD_PAUSE_MAX_S, 0.1 * 2.0**self._setbacks)
            _log.warning("the application was not imported and is tried again: %s", reason)
        if not temporary or self._setbacks >= PATIENCE:
            self._tell_unfit(without_own_lines(reason))

    def _tell_unfit(self, reason: str) -> None:
        """What cannot be imported holds everything up, unless an older version goes on to serve."""
        serves = self._next is not None
        if serves:
            self._retire_next()
        else:
            self._dispatcher.watch_sources(self._files)
            self._dispatcher.hold(reason)
        self._watcher.unfit(reason, serves=serves)
        self._compare(self._code)

    def _replace(self, squad: Squad) -> None:
        """Workers are of this squad from now on; those of the one before may end in peace."""
        if self._squad is not None:
            self._old.append(self._squad)
        self._squad = squad

    def _retire_next(self) -> None:
        squad, self._next = self._next, None
        if squad is not None:
            self._old.append(squad)

    def _warm_services(self) -> None:
        """Have a worker start the services that the application wants ready."""
        if self._squad is not None:
            pool = self._plan.options["pool"]
            self._send(Errand(self._squad, "warm", (pool,), self._watcher.warmed, self._cold))

    def _cold(self, reason: str, temporary: bool) -> None:
        _log.warning("the services of the application cannot be kept ready: %s", reason)

    def _send(self, errand: Errand) -> None:
        if errand.begin():
            self._errands.append(errand)
            self._register(errand.worker)

    def _advance_errands(self) -> None:
        for errand in list(self._errands):
            before = errand.worker
            over = errand.advance()
            if over or errand.worker is not before:
                self._unregister(before)
            if over:
                # A new version, which may have begun meanwhile, has left all of them.
                if errand in self._errands:
                    self._errands.remove(errand)
            elif errand.worker is not before:
                self._register(errand.worker)

    def _leave(self, errand: Errand) -> None:
        self._unregister(errand.worker)
        errand.leave()

    def _close_old(self) -> None:
        """Close squads whose last worker has ended."""
        for squad in [it for it in self._old if not it.living]:
            self._old.remove(squad)
            self._close(squad)

    def _close_squads(self) -> None:
        for errand in self._errands:
            self._leave(errand)
        squads, self._squad, self._next, self._old = self._squads(), None, None, []
        for squad in squads:
            self._close(squad)

    def _close(self, squad: Squad) -> None:
        self._poll.unregister(squad.fileno())
        squad.close(5.0)

    def _register(self, worker: Worker | None) -> None:
        if worker is not None and (descriptor := worker.fileno()) >= 0:
            self._poll.register(descriptor, select.POLLIN)
            self._polled[descriptor] = worker

    def _unregister(self, worker: Worker | None) -> None:
        """Poll a worker's socket no more, unless its number is another one's by now."""
        for descriptor in [at for at, polled in self._polled.items() if polled is worker]:
            del self._polled[descriptor]
            self._poll.unregister(descriptor)
