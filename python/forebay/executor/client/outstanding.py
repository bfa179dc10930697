"""What a client has sent and has no answer to yet.

A submission is one `run` call, sent without waiting; its answer is the end of the request. A server
that hands its requests to another one answers with the id alone: the request is accepted, and the
next server is asked for its end.
That it was *accepted* is a question of its own, by the submission token that went with it. Only
`submit`, a program that reads `request.id`, and a client before it leaves ask it.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, Final

from forebay.errors import (
    BrokenError,
    DeadlineError,
    Error,
    ProtocolError,
)
from forebay.executor.client.links import Links
from forebay.executor.wire.frames import Answers, Message, message, value_of

__all__ = ["Outstanding", "Sent"]

DROPPED_MAX: Final = 256
"""Dropped submissions that are not known to be accepted; the next one waits for their commit."""

OPEN_MAX: Final = 4096
"""Submissions whose answers are due; the next one waits until those before it are accepted, and
their ends are asked for when they are wanted. A server keeps 65,536 calls of one client."""

SURE_S: Final = 0.05
"""A caller that waits for longer asks whether it is accepted: with its id the wait goes on after
a restart of the server. Short requests end before that, and save the question."""


class Sent:
    """One `run` or `wait` on its way.

    Attributes:
        channel: where it was sent.
        call: its number there; negative where it is to be sent, or asked for by its id, again.
        token: the submission token, by which the server knows a `run` on that connection; 0 for a
            `wait`.
        message: what was sent, as long as it may have to be sent again.
        repeatable: whether sending it again cannot make a second request.
        id: of the request, once it is known to be accepted.
        lock: held by the thread that waits for the answer.
        answer: once it has come; the error where it will never be known.
    """

    __slots__ = ("answer", "call", "channel", "id", "lock", "message", "repeatable", "token")

    def __init__(
        self,
        channel: Answers,
        call: int,
        token: int,
        message: Message | None,
        repeatable: bool,
        id_: str | None = None,
    ) -> None:
        self.channel = channel
        self.call = call
        self.token = token
        self.message = message
        self.repeatable = repeatable
        self.id = id_
        self.lock = threading.Lock()
        self.answer: Any = None


class Outstanding:
    """The submissions of one client.

    Threads: any. No lock is held while a program's own code runs; `Sent.lock` comes before the
    lock of the links.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._tokens = itertools.count(1)
        self._open: dict[int, Sent] = {}
        """By submission token: not ended, as far as this side knows."""
        self._dropped: list[Sent] = []
        self._refused: dict[int, Error] = {}
        """By submission token: what a submission was refused with, until somebody looks at it."""

    def next_token(self) -> int:
        """A submission token that no other submission of this client has."""
        return next(self._tokens)

    def send(
        self,
        channel: Answers,
        frame: Message,
        token: int,
        *,
        repeatable: bool,
        id_: str | None = None,
    ) -> Sent:
        """Send a `run` or a `wait` and remember it.

        Raises:
            BrokenError: no server came back in time. LimitError: it is above the frame limit.
        """
        try:
            call = channel.send(frame)
        except BrokenError as error:
            if error.delivered != "no":
                raise
            channel, call = self._resend(channel, frame, None)
        sent = Sent(channel, call, token, frame, repeatable, id_)
        if token:
            if len(self._open) >= OPEN_MAX:
                self._let_go(list(self._open.values()))
            self._open[token] = sent
        if len(self._dropped) >= DROPPED_MAX:
            dropped, self._dropped = self._dropped, []
            self._let_go(dropped)
        return sent

    def finish(self, sent: Sent, timeout: float | None) -> Any:
        """Wait for the answer; a server that went away and came back is asked again.

        Raises:
            DeadlineError: time ran out; the call goes on, and may be waited for again.
            BrokenError: the server is gone, or it is unknown whether it had accepted.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if not sent.lock.acquire(timeout=-1 if timeout is None else timeout):
            raise DeadlineError("another thread waits for the same request", timeout=timeout)
        try:
            asked = False
            while sent.answer is None:
                sure = asked or sent.id is not None or not sent.token
                left = None if until is None else max(0.0, until - time.monotonic())
                if not sure:
                    left = SURE_S if left is None else min(SURE_S, left)
                try:
                    if sent.call < 0:
                        sent.call = sent.channel.send(_frame_of(sent))
                    _settle(sent, left)
                except DeadlineError:
                    if sure or (until is not None and time.monotonic() >= until):
                        raise
                    self._make_sure(sent, until)
                    asked = True
                except BrokenError as error:
                    self._recover(sent, error, until)
            self._open.pop(sent.token, None)
            self._refused.pop(sent.token, None)
            return sent.answer
        finally:
            sent.lock.release()

    def accepted(
        self, sent: Sent, timeout: float | None = None, asked: tuple[Answers, int] | None = None
    ) -> str:
        """Wait until the server has accepted it; returns the id.

        Args:
            sent: a `run`.
            timeout: seconds.
            asked: where the question was sent already.

        Raises:
            what it was refused with; DeadlineError; BrokenError as `finish`.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while sent.id is None and sent.answer is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            channel = sent.channel
            try:
                if asked is None:
                    asked = channel, channel.send(_question(sent))
                channel, call = asked
                told = channel.settle(call, left)
                channel.release(call)
            except BrokenError:
                asked = None
                with sent.lock:  # unless another thread has sent it again meanwhile
                    if sent.channel is channel and sent.answer is None:
                        self._look(sent, until, wait=False)
                continue
            asked = None
            self._take_acceptance(sent, told, until)
        if sent.id is None:
            # Its answer has come: nothing of it is open any more, whether it was refused or not.
            self._open.pop(sent.token, None)
            self._refused.pop(sent.token, None)
            sent.id = value_of(sent.answer, sent.channel.name)[1]
        sent.message = None  # which may be large, and will not be sent again
        return sent.id

    def drop(self, sent: Sent) -> None:
        """The handle is gone, so its answer is not needed; the request goes on. Never waits."""
        if sent.answer is None:
            self._dropped.append(sent)

    def accept_all(self, some: list[Sent]) -> None:
        """Wait until the server has accepted or refused each, in few turns.

        What became of each is told by `accepted`, which does not wait afterwards.
        """
        self._confirm(some, None)

    def confirm(self, timeout: float) -> list[Error]:
        """Wait until everything is accepted; returns what was refused and never looked at."""
        unsure = self._confirm(list(self._open.values()), time.monotonic() + timeout)
        refused = list(self._refused.values())
        self._refused.clear()
        if unsure:
            refused.append(unconfirmed(unsure[0].channel.name, len(unsure), timeout))
        return refused

    def _take_acceptance(self, sent: Sent, told: Any, until: float | None) -> None:
        try:
            sent.id = value_of(told, sent.channel.name)[1]
        except ProtocolError:
            raise
        except Error:
            # It has ended meanwhile, or was refused: its own answer, which is on its way, says so.
            with sent.lock:  # a thread that waits for the answer has it then
                if sent.answer is None:
                    self._look(sent, until, wait=True)

    def _make_sure(self, sent: Sent, until: float | None) -> None:
        """Learn whether it is accepted; the caller holds its lock, and waits for its end.

        Where that is not told, the answer itself says why, and is left for the caller.
        """
        left = None if until is None else max(0.0, until - time.monotonic())
        channel = sent.channel
        try:
            question = channel.send(_question(sent))
            told = channel.settle(question, left)
            channel.release(question)
            sent.id, sent.message = value_of(told, channel.name)[1], None
        except DeadlineError:
            raise
        except Error:
            return

    def _look(self, sent: Sent, until: float | None, *, wait: bool) -> None:
        """Learn what became of it; the caller holds its lock.

        What the question for its acceptance was told says nothing of the submission itself.

        Args:
            sent: a `run`.
            until: on the monotonic clock.
            wait: for its answer; without it the connection has broken, and nothing more comes.

        Raises:
            DeadlineError: `until` has come.
        """
        left = None if until is None else max(0.0, until - time.monotonic())
        try:
            if sent.call < 0:
                sent.call = sent.channel.send(_frame_of(sent))
            else:
                _settle(sent, left if wait else 0.0)
        except BrokenError as error:
            self._recover(sent, error, until)

    def _let_go(self, some: list[Sent]) -> None:
        """Make sure that they are accepted, so that their answers need not be kept."""
        self._confirm(some, time.monotonic() + self._links.timeout)
        for sent in some:
            if sent.lock.acquire(blocking=False):  # else a thread waits for the answer now
                if sent.answer is None and sent.id is not None and sent.call >= 0:
                    sent.channel.give_up(sent.call)
                    sent.call = -1
                sent.lock.release()

    def _confirm(self, some: list[Sent], until: float | None) -> list[Sent]:
        """Learn of each whether it was accepted, and forget it; those that are still unknown."""
        unsure = []
        for start in range(0, len(some), DROPPED_MAX):
            batch = [
                (sent, self._ask(sent))
                for sent in some[start : start + DROPPED_MAX]
                if sent.answer is None
            ]
            for sent, asked in batch:
                try:
                    left = None if until is None else max(0.0, until - time.monotonic())
                    self.accepted(sent, left, asked)
                except DeadlineError:
                    unsure.append(sent)
                    continue  # it stays open, and is asked about again
                except Error as error:
                    self._refused[sent.token] = error
                self._open.pop(sent.token, None)
        return unsure

    def _ask(self, sent: Sent) -> tuple[Answers, int] | None:
        if sent.id is not None:
            return None
        channel = sent.channel
        try:
            return channel, channel.send(_question(sent))
        except BrokenError:
            return None  # `accepted` finds out, and recovers

    def _recover(self, sent: Sent, error: BrokenError, until: float | None) -> None:
        """Send it again on another connection, where that makes no second request.

        Where it might, the error is its answer. The caller holds its lock.
        """
        if isinstance(error, ProtocolError):
            raise error
        known = sent.id is not None
        if not known and not sent.repeatable and error.delivered != "no":
            error.add_note(
                "the server went away before it said whether it had accepted the request; look with"
                " forebay ps, or submit with Submit(idempotency=...), which may be sent again"
            )
            sent.answer = error
            return
        sent.call = -1  # its outcome was taken: whatever happens here, the next one sends it again
        sent.channel, sent.call = self._resend(sent.channel, _frame_of(sent), until)

    def _resend(self, channel: Answers, frame: Message, until: float | None) -> tuple[Answers, int]:
        while True:
            channel = self._links.again(channel, until)
            try:
                return channel, channel.send(frame)
            except BrokenError as error:
                if error.delivered != "no":
                    raise


def _settle(sent: Sent, timeout: float | None) -> None:
    """Take its answer, or its id from a server that will not know its end; errors as of `settle`.

    The caller holds its lock.
    """
    call = sent.call
    answer = sent.channel.settle(call, timeout)
    if type(answer) is list and len(answer) == 2 and answer[0] == 0:
        sent.id, sent.message, sent.call = answer[1], None, -1
    else:
        sent.answer = answer
    sent.channel.release(call)


def unconfirmed(server: str, count: int, timeout: float) -> DeadlineError:
    """The error for submissions whose acceptance the server did not report in time."""
    return DeadlineError(
        f"{server} has not said within {timeout:g} s whether it has accepted {count} requests;"
        " look with: forebay ps",
        timeout=timeout,
    )


def _frame_of(sent: Sent) -> Message:
    """What asks for its end: by its id where that is known."""
    if sent.id is not None:
        return message("wait", (sent.id,))
    assert sent.message is not None  # it is kept until the id is known
    return sent.message


def _question(sent: Sent) -> Message:
    return message("accepted", (sent.token,))
