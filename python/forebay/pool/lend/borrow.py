"""One acquire that has to wait, whatever pool it asks."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from forebay.errors import BrokenError, ClosedError, DeadlineError, RemoteError
from forebay.pool.lend.step import Settle, Steps
from forebay.pool.lend.unsettled import TRIES, Owner, exhausted, handle_failure, leave
from forebay.pool.lend.wait import Deadline

_log = logging.getLogger(__name__)


class Granted(NamedTuple):
    """What a pool gave."""

    record: Any
    settled: bool
    """Nothing is left to read of it."""
    quiet: bool
    """It is settled, but was idle for so long that it is asked whether it answers."""


class Borrow:
    """One acquire that has to wait: its tries, and the answer that a service owes.

    If it ends early (deadline, cancellation, Ctrl-C), the pool is as if it had not asked: a service
    that is starting completes its start, and the next caller gets it.
    """

    __slots__ = ("_deadline", "_kind", "_owner")

    def __init__(self, owner: Owner, kind: Any, deadline: Deadline) -> None:
        self._owner = owner
        self._kind = kind
        self._deadline = deadline

    def tries(self) -> Steps[Any]:
        """Wait until a service is lent; its record."""
        for attempt in range(1, TRIES + 1):
            last = attempt == TRIES
            try:
                record, settled, quiet = yield from self._granted()
            except BrokenError:
                if last or self._owner.is_over():
                    raise
                continue  # the keeper was lost meanwhile; the next try starts another
            try:
                quiet = quiet and record.begin_ping()
            except (BrokenError, OSError):
                self._owner.discard(record)
                continue  # it ended while it was idle
            if settled and not quiet:
                return record
            if (yield from self._settle(record, last=last, quiet=quiet)):
                return record
        raise exhausted(self._owner, self._kind.name)

    def _granted(self) -> Steps[Granted]:
        """A service, which may still owe an answer."""
        raise NotImplementedError

    def _too_late(self, *, waiting: bool) -> Steps[DeadlineError]:
        """The error that says why no service was free; `waiting`: this caller counts as waiting."""
        raise NotImplementedError

    def _settle(self, record: Any, *, last: bool, quiet: bool) -> Steps[bool]:
        """Take the answer that the service owes. False: it failed, and another should be tried."""
        owner, starting = self._owner, record.starting
        deadline = self._deadline.within(owner.reset_timeout) if quiet else self._deadline
        try:
            yield Settle(record, deadline.left())
            if starting:
                yield from owner.learn_process(record, self._deadline)
        except DeadlineError:
            if quiet and not self._deadline.passed():
                owner.discard(record)
                _log.warning(
                    "service %s (process %d) did not answer within %g s after it was idle and is"
                    " replaced",
                    self._kind.name,
                    record.pid,
                    owner.reset_timeout,
                )
                return False
            try:  # it says what holds the services now, this one among them
                late = yield from self._too_late(waiting=False)
            finally:
                leave(owner, record, starting=starting)
            raise late from None
        except (RemoteError, BrokenError, OSError) as error:
            yield from handle_failure(owner, record, error, last=last, starting=starting)
            return False
        except ClosedError:
            record.close()
            raise
        except BaseException:
            leave(owner, record, starting=starting)
            raise
        if record.found:
            owner.discard(record, "contaminated")
            _log.error(
                "service %s (process %d) is contaminated: after its reset these are not as in a new"
                " one: %s; it was ended. Let reset() restore them, or name them in canary_ignores",
                self._kind.name,
                record.pid,
                ", ".join(record.found),
            )
            return False
        return True
