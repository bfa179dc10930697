"""Keeping a kind of a shared pool ready: the lender says what is missing, this program makes it.

The lender never unpickles what a service is made of, so a program starts it; whoever acquires it
first, of any program, takes it over as a start that was left.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from typing import TYPE_CHECKING

from forebay._steps import block
from forebay.errors import ClosedError, Error
from forebay.pool.lend.ahead import Pace
from forebay.pool.lend.wait import Deadline
from forebay.pool.shared.link import Link, check

if TYPE_CHECKING:
    from forebay.pool.shared.kind import SharedCommandKind, SharedKind
    from forebay.pool.shared.pool import SharedPool

START_S = 30.0
"""Seconds that a start ahead may take until the lender has begun it."""

LOOK_AGAIN_S = 1.0
"""Seconds until a lender that has ended is looked for again."""

_log = logging.getLogger(__name__)


class Refill:
    """A thread that starts what is missing of one kind, until `min_idle` is 0 or the pool is gone.

    Threads: any may call its methods. It keeps no pool alive that nobody else has.
    """

    def __init__(
        self, pool: SharedPool, kind: SharedKind | SharedCommandKind, min_idle: int
    ) -> None:
        self._pace = Pace(pool.name, kind.name)
        self._pool = weakref.ref(pool)
        self._kind = kind
        self._min_idle = min_idle
        self._leases = 0
        """Leases of the kind when one was last started, by all programs."""
        self._changed = threading.Event()
        self._asked: tuple[Link, int] | None = None
        """The question that the thread waits for, if it waits."""
        weakref.finalize(pool, self.keep, 0).atexit = False
        thread = threading.Thread(target=self._run, name=f"forebay-warm-{kind.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter ends, or the user has too many threads
            self._pace.failed(error)

    def keep(self, min_idle: int) -> None:
        """Keep so many from now on; 0 ends the thread."""
        self._min_idle = min_idle
        self._changed.set()
        asked = self._asked
        if asked is not None:
            link, ticket = asked
            with contextlib.suppress(Error):  # the lender has ended, which wakes the thread, too
                link.core.withdraw(ticket)

    def _run(self) -> None:
        link = None
        while self._min_idle:
            self._changed.clear()
            try:
                pool = self._pool()
                if pool is None:
                    break
                link = pool.link()
                del pool
                pause = self._fill(link)
            except ClosedError:
                return
            except (Error, OSError) as error:
                _log.info("keeping %s ready goes on after: %s", self._kind.name, str(error))
                pause = LOOK_AGAIN_S
            self._changed.wait(pause)
        if link is not None and self._kind.digest in link.keys:
            with contextlib.suppress(Error):  # the lender has ended, or the pool was closed
                link.core.stop_refill(link.keys[self._kind.digest])

    def _fill(self, link: Link) -> float:
        """Start the next one that is missing; seconds until one is looked for again."""
        key = block(link.key(self._kind, Deadline(START_S)), link)  # type: ignore[misc]
        if key is None:
            return LOOK_AGAIN_S
        ticket = link.core.refill(key, self._min_idle)
        self._asked = (link, ticket)
        try:
            answer = None if self._changed.is_set() else link.core.wait(ticket)
        finally:
            self._asked = None
        if answer is None:  # `keep` has withdrawn the question
            link.core.withdraw(ticket)
            return 0.0
        try:
            check(answer)
            if answer[3] != self._leases:
                self._pace.thrive()
                self._leases = answer[3]
            start = link.start(self._kind, answer, Deadline(START_S))
            link.abandon(block(start, link))  # type: ignore[misc]
        except ClosedError:
            raise
        except (Error, OSError) as error:
            if link.is_over():
                raise
            self._pace.failed(error)
        return self._pace.pause(self._min_idle)
