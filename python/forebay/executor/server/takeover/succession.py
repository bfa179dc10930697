"""The place of a server, between the server before it and the one after it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from forebay.errors import BrokenError
from forebay.executor.server.loading import Loaded, load
from forebay.executor.server.takeover.handover import Handover
from forebay.executor.server.takeover.moved import MovedWorkers, stamp
from forebay.executor.server.takeover.predecessor import Inherited, Predecessor

if TYPE_CHECKING:
    from forebay._core import Dispatcher
    from forebay.executor.server.services import Services
    from forebay.executor.server.supervisor import Supervisor
    from forebay.executor.server.worker_group import WorkerGroup
    from forebay.executor.wire.paths import StateLock

ENDED_S = 1.0
"""For the other server to be seen to have ended, once its connection has."""

ENDS_S = 10.0
"""For one that has said that it ends: it may have to let go of a cluster first."""

END_S = 5.0
"""For a template that nobody has use for."""

Report = Callable[[str, dict[str, Any]], None]


class Kept(NamedTuple):
    """What outlives the dispatcher of a server whose place is given.

    Attributes:
        lock: of the state directory, which goes over.
        supervisor: the parent of the workers.
        services: which the workers may have leased.
        gateway: its process; None: there is none.
    """

    lock: StateLock
    supervisor: Supervisor
    services: Services
    gateway: int | None


class Owner(Protocol):
    """The server, as far as it is asked."""

    def stops(self) -> int:
        """How often it was asked to stop."""


class Succession:
    """Takes a server's place from the one before, and gives it to the one after.

    Args:
        predecessor: the running server whose place is taken; None: there is none. It stays the
            caller's.
        owner: the server.
        report: gets "taking", "given", "taken" and "resumed".

    Attributes:
        moved: workers of the dispatcher that another supervisor has started.
        is_given: whether the dispatcher has closed for another server.
        is_over: whether another server has the place.
    """

    def __init__(self, predecessor: Predecessor | None, owner: Owner, report: Report) -> None:
        self._predecessor = predecessor
        self._owner = owner
        self._report = report
        self._loaded: Loaded | None = None
        self._given: Handover | None = None
        self._retired: list[Services] = []
        """Those from before a take-over that has failed: workers may have leased some."""
        self.moved: MovedWorkers | None = None
        self.is_over = False

    @property
    def takes(self) -> bool:
        """Whether there is a server whose place is to be taken."""
        return self._predecessor is not None

    @property
    def is_given(self) -> bool:
        """Whether the dispatcher has closed for another server."""
        return self._given is not None

    def close(self) -> None:
        """End what nobody has taken. Idempotent."""
        loaded = self.take_loaded()
        if loaded is not None:
            loaded.group.close(END_S)
        while self._retired:
            self._retired.pop().close()

    # From the server before.

    def take(self, group_of: Callable[[], WorkerGroup], *, within_s: float) -> Inherited | None:
        """Import the application, then have the place.

        None: asked to stop meanwhile; or the other server has ended, and there is no place to take.

        Args:
            group_of: makes the group of the application's workers.
            within_s: how long to wait for what cannot go over.

        Raises:
            ConfigError: it cannot be imported; BrokenError: the other one keeps its place.
        """
        assert self._predecessor is not None

        def is_asked_to_stop() -> bool:
            return self._owner.stops() > 0

        self._loaded = load(group_of, is_asked_to_stop=is_asked_to_stop)
        if self._loaded is None:
            return None
        try:
            place = self._predecessor.take(within_s, self._report, is_asked_to_stop)
        except BrokenError:
            if not self._predecessor.has_ended(ENDS_S if self._predecessor.ends else ENDED_S):
                raise
            self._predecessor = None  # nobody serves: this server begins as any
            return None
        self.moved = None if place is None else self._predecessor.moved(place)
        return place

    def take_loaded(self) -> Loaded | None:
        """The application, if it was imported; it is the caller's."""
        loaded, self._loaded = self._loaded, None
        return loaded

    def serves(self, dispatcher: Dispatcher) -> None:
        """This server has the place now: the other one leaves, and tells how its workers end.

        Raises:
            BrokenError: the other one may have begun to serve again, and this one must end.
        """
        predecessor, self._predecessor = self._predecessor, None
        if predecessor is not None:
            predecessor.taken()
        dispatcher.begin()
        if self.moved is not None:
            self.moved.attend(dispatcher.worker_died)

    # To the server after; `given` comes from the listener's thread.

    def given(self, given: Handover) -> None:
        """The dispatcher has closed; `pass_on` follows."""
        self._given = given

    def pass_on(self, kept: Kept, drain_s: float) -> Inherited | None:
        """Give the place to who asked for it; what to serve with again, if that has failed.

        Blocks until the other server serves and no worker or lease needs this one any more.

        Args:
            kept: what this server has kept for that; it is taken.
            drain_s: how long services are lent when no worker is left.
        """
        given = self._given
        if given is None:
            return None
        told = {"pid": given.channel.pid}
        stamp(given.workers)
        self._report("given", told)
        self.is_over = given.pass_on(
            kept.lock.fileno(), kept.gateway, lambda: self._report("taken", told)
        )
        if self.is_over:
            given.close()
            kept.lock.close()
            self._keep(given, kept, drain_s)
            return None
        self._given = None
        self._report("resumed", told)
        os.close(given.process)
        lock = os.dup(kept.lock.fileno())
        kept.lock.close()
        if given.workers:
            self._retired.append(kept.services)
            self.moved = MovedWorkers(given.workers, kept.supervisor)
        else:
            self.moved = None
            kept.supervisor.close()
            kept.services.close()
        return Inherited(lock, given.clients, kept.gateway, given.workers)

    def _keep(self, given: Handover, kept: Kept, drain_s: float) -> None:
        """Be the parent of the workers that went over, and lend what they have leased."""
        until = time.monotonic() + drain_s
        services, asked = kept.services, self._owner.stops()
        given.keep_workers(
            kept.supervisor,
            lambda: time.monotonic() < until and services.leased() > 0,
            lambda: self._owner.stops() > asked + 1,  # once is for the one that serves
        )
        services.close()
