"""What becomes of a service whose start or reset failed while it was being lent."""

from __future__ import annotations

import logging
from typing import Any, Literal, NamedTuple, Protocol

from forebay.errors import BrokenError, DiedError, RemoteError
from forebay.pool.lend.step import Steps
from forebay.pool.lend.wait import Deadline

TRIES = 3
"""Tries of one acquire: it tries again if a template or keeper was killed, but not for ever."""

BLAMELESS: tuple[str, ...] = ("template_died", "keeper_lost")
"""Causes of a death for which the service is not to blame."""

DiscardCause = Literal["discarded", "contaminated", "reset_failed", "returned"]
"""Why a lent service is ended; one that was "returned" gets the time to end by itself."""

_log = logging.getLogger(__name__)


class Holding(NamedTuple):
    """A lease that has not ended."""

    lease: tuple[int, int]
    """Its slot and generation."""
    pid: int
    """The process of its service; 0 until that is known."""
    name: str
    """Of its kind."""
    held_s: float


class Owner(Protocol):
    """What lends and ends services, and knows why they ended: a pool, or the link to a lender."""

    name: str

    @property
    def reset_timeout(self) -> float:
        """Seconds that a service may take for a reset, or to say that it answers."""

    def is_over(self) -> bool:
        """Whether no further try can get a service."""

    def learn_process(self, record: Any, deadline: Deadline) -> Steps[None]:
        """Wait until the process of a service that has answered its start is known, and lend it."""

    def holdings(self) -> list[Holding]:
        """What is leased now."""

    def give_back(self, record: Any, dirty: bool) -> None:
        """End a lease."""

    # Each owner takes its own kind of record.
    def discard(self, record: Any, cause: DiscardCause = "discarded") -> None:
        """Have a service ended."""

    def abandon(self, record: Any) -> None:
        """Leave a start that is under way to the next caller."""

    def explain(self, handle: Any, name: str, error: BaseException) -> Steps[BaseException]:
        """Why a service broke: its death where that is reported in time, else `error`."""


def handle_failure(
    owner: Owner, record: Any, error: Exception, *, last: bool, starting: bool
) -> Steps[None]:
    """End a service that failed to settle; return if another should be tried.

    Otherwise raises the caller's error: it was the last try, or the service was starting and is
    itself to blame.
    Cancellation: the service is ended all the same.
    """
    if isinstance(error, RemoteError):
        owner.discard(record, "discarded" if starting else "reset_failed")
        if starting:
            raise error  # its constructor raised
        _log.warning(
            "service %s (process %d) failed to reset and is replaced: %s\n%s",
            record.kind.name,
            record.pid,
            str(error),  # a log record would keep the error and the frames of this acquire
            error.traceback_text.rstrip(),
        )
        return
    try:
        told = yield from owner.explain(record.handle, record.kind.name, error)
    finally:  # a cancellation may come meanwhile
        owner.discard(record)
    blameless = isinstance(told, DiedError) and told.cause in BLAMELESS
    if last or (starting and not blameless):
        raise told from None
    _log.warning("%s; another is tried", told)


def leave(owner: Owner, record: Any, *, starting: bool) -> None:
    """Give up a service that has not settled: a start goes on; in a reset, the service is ended."""
    if starting:
        owner.abandon(record)
    else:
        owner.discard(record)


def exhausted(owner: Owner, name: str) -> BrokenError:
    """The error for an acquire each of whose tries failed."""
    return BrokenError(f"pool {owner.name!r}: {name} ended {TRIES} times before it could be lent")
