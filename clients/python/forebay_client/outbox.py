"""Submissions that a program does not wait for, sent by a thread of their own.

While one call is on its way the next submissions gather, so that many share a call and a commit.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from forebay_client.errors import ClosedError, DeadlineError, Error, InternalError
from forebay_client.submission import Submission

__all__ = [
    "GATHERED_MAX",
    "UNACCEPTED_MAX",
    "Outbox",
    "Sent",
    "not_accepted",
    "settled",
    "unexpected",
    "unseen",
]

UNACCEPTED_MAX: Final = 4096
"""Submissions under way; the next one waits for the oldest."""

GATHERED_MAX: Final = 1000
"""Submissions of one call."""


class Sent:
    """One submission on its way.

    Attributes:
        outcome: its id, or why it was refused, once that is known.
        looked_at: whether the program has seen that it was refused.
    """

    __slots__ = ("looked_at", "outcome", "submission")

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.outcome: str | Error | None = None
        self.looked_at = False


class Outbox:
    """The submissions of one client.

    Threads: any. Its own thread begins with the first submission and ends on `close`. Forks: it is
    the parent's, whose thread and lock a child does not have; there it refuses.

    Args:
        send: submits several, and returns what became of each.
    """

    def __init__(self, send: Callable[[Sequence[Submission]], Sequence[str | Error]]) -> None:
        self._send = send
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[Sent] = deque()
        self._under_way = 0
        self._refused: list[Sent] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, submission: Submission) -> Sent:
        """Begin to submit, once fewer than `UNACCEPTED_MAX` are under way."""
        self._check_process()
        sent = Sent(submission)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._count() < UNACCEPTED_MAX)
            if self._closed:
                raise ClosedError("the client is closed; make another one")
            self._waiting.append(sent)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="forebay-client submissions", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        return sent

    def id_of(self, sent: Sent, timeout: float | None) -> str:
        """Wait for the id.

        Raises:
            what it was refused with. DeadlineError: `timeout` ran out. ClosedError: a forked child
            waits for a submission of its parent.
        """
        self._check_process()
        with self._changed:
            if not self._changed.wait_for(lambda: sent.outcome is not None, timeout):
                raise not_accepted(sent, timeout)
            sent.looked_at = True
        if isinstance(sent.outcome, str):
            return sent.outcome
        assert sent.outcome is not None  # it was waited for
        raise sent.outcome

    def finish(self, timeout: float) -> list[Error]:
        """Wait until all are accepted; returns what was refused and never looked at."""
        if self._is_parents:
            return []
        until = time.monotonic() + timeout
        with self._changed:
            self._changed.wait_for(lambda: not self._count(), max(0.0, until - time.monotonic()))
            refused, self._refused = self._refused, []
            return unseen(refused, self._count(), timeout)

    def close(self) -> None:
        """End its thread; what was not sent is not sent any more. Idempotent."""
        if self._is_parents:
            return
        with self._changed:
            self._closed = True
            for sent in self._waiting:
                sent.outcome = ClosedError("the client was closed before this was submitted")
            self._waiting.clear()
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    @property
    def _is_parents(self) -> bool:
        return self._pid != os.getpid()

    def _check_process(self) -> None:
        if self._is_parents:
            raise ClosedError(
                f"process {self._pid} made this client, and this is a forked child of it; make a"
                " client here"
            )

    def _count(self) -> int:
        return len(self._waiting) + self._under_way

    def _run(self) -> None:
        while some := self._take():
            outcomes = self._outcomes(some)
            with self._changed:
                self._refused += settled(some, outcomes)
                self._under_way = 0
                self._changed.notify_all()

    def _outcomes(self, some: Sequence[Sent]) -> Sequence[str | Error]:
        try:
            return self._send([sent.submission for sent in some])
        except Exception as error:  # of this thread, without which nobody would get an answer
            return [unexpected(error)] * len(some)

    def _take(self) -> list[Sent]:
        """What one call submits; nothing once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return []
            some = [self._waiting.popleft() for _ in range(min(GATHERED_MAX, len(self._waiting)))]
            self._under_way = len(some)
            return some


def settled(some: Sequence[Sent], outcomes: Sequence[str | Error]) -> list[Sent]:
    """Note what became of submissions; those that were refused."""
    for sent, outcome in zip(some, outcomes, strict=True):
        sent.outcome = outcome
    return [sent for sent in some if isinstance(sent.outcome, Error)]


def not_accepted(sent: Sent, timeout: float | None) -> DeadlineError:
    """The error for a caller whose time for an acceptance ran out."""
    return DeadlineError(
        f"the server has not said within {timeout:g} s whether it has accepted request"
        f" {sent.submission.name!r}; wait again",
        timeout=timeout,
    )


def unexpected(error: Exception) -> InternalError:
    """The error for submissions whose call failed as none should."""
    internal = InternalError(
        f"a submission failed by a fault of forebay-client, and may be accepted: {error!r}; please"
        " report it"
    )
    internal.__cause__ = error
    return internal


def unseen(refused: Sequence[Sent], unsure: int, timeout: float) -> list[Error]:
    """What a program is told when it leaves: what it has not looked at, and what is not known.

    Args:
        refused: submissions.
        unsure: how many others are under way.
        timeout: that these have had.
    """
    errors = [sent.outcome for sent in refused if not sent.looked_at]
    known = [one for one in errors if isinstance(one, Error) and not isinstance(one, DeadlineError)]
    unsure += len(errors) - len(known)
    return [*known, unconfirmed(unsure, timeout)] if unsure else known


def unconfirmed(count: int, timeout: float) -> DeadlineError:
    """The error for submissions whose acceptance was not reported in time."""
    return DeadlineError(
        f"the server has not said within {timeout:g} s whether it has accepted {count} requests;"
        " look with: forebay ps",
        timeout=timeout,
    )
