"""How long one call goes on when its gateway is away, or asks to come later."""

from __future__ import annotations

import email.utils
import itertools
import random
import time
from datetime import UTC, datetime
from typing import Final

from forebay_client.errors import BrokenError, ProtocolError
from forebay_client.http.limits import PAUSE_S, TURN_S
from forebay_client.http.messages import Answer, Call
from forebay_client.problems import IN_PROGRESS, code_of, delivered_of

__all__ = ["Patience"]

LATE_S: Final = 0.25
"""An answer that was asked for by a time may come so much later."""

IN_PROGRESS_S: Final = 0.1
"""Before asking again for a submission whose first copy is not committed yet."""

SPREAD: Final = 0.1
"""A pause that many clients were told is longer by up to this part of it, by chance."""


class Patience:
    """The time of one call: what a single attempt may take, and the pause before the next one.

    Args:
        timeout: seconds that a gateway may be away, or ask for, since that began.
        until: on the monotonic clock, when the call is given up in any case; None: never.
    """

    def __init__(self, timeout: float, until: float | None) -> None:
        self._timeout = timeout
        self._until = until
        self._away_since: float | None = None
        self._pauses = itertools.chain(PAUSE_S, itertools.repeat(PAUSE_S[-1]))

    def attempt_end(self, call: Call) -> float:
        """When an attempt that begins now is given up."""
        end = time.monotonic() + call.wait + self._timeout
        return end if self._until is None else min(end, self._until + LATE_S)

    def turn_end(self, call: Call) -> float:
        """When a call that waits for a connection now is given up."""
        if self._until is not None:
            return self._until + LATE_S
        return time.monotonic() + (TURN_S if call.kind == "wait" else self._timeout)

    def heard(self) -> None:
        """The gateway is there again: the time that it may be away begins with its next break."""
        self._away_since = None

    def progressed(self) -> None:
        """A stream has gone on: after its next break the first pause is short again."""
        self._pauses = itertools.chain(PAUSE_S, itertools.repeat(PAUSE_S[-1]))

    def after_break(self, error: BrokenError, call: Call, *, reached: bool) -> float:
        """The pause after an attempt that broke.

        Args:
            error: of the attempt.
            call: which one.
            reached: whether this client has reached the gateway before: nobody waits for one that
                was never there.

        Raises:
            the error: another attempt could do it twice, or the time has run out.
        """
        again = call.repeatable or error.delivered == "no"
        if isinstance(error, ProtocolError) or not again or not reached:
            raise error
        left = self._left()
        if left <= 0:
            raise error
        return min(left, next(self._pauses))

    def after_answer(self, answer: Answer, call: Call) -> float | None:
        """The pause before the call is made again; None where the answer is the last word."""
        left = self._left()
        if answer.status in (502, 504):  # of a proxy that does not reach the gateway
            return min(left, next(self._pauses)) if call.repeatable and left > 0 else None
        if answer.status == 409 and code_of(answer) == IN_PROGRESS:
            asked: float | None = _retry_after(answer) or IN_PROGRESS_S
        elif answer.status == 429 or (answer.status == 503 and _may_repeat(answer, call)):
            asked = _retry_after(answer)
        else:
            return None
        if asked is None or asked > self._left_away():
            return None
        if left <= 0:
            return None  # the caller's own time ends before
        return min(left, max(asked, next(self._pauses)))  # it may have asked for no pause at all

    def _left(self) -> float:
        """The seconds until the call is given up."""
        left = self._left_away()
        return left if self._until is None else min(left, self._until - time.monotonic())

    def _left_away(self) -> float:
        """The seconds that the gateway may still be away."""
        if self._away_since is None:
            self._away_since = time.monotonic()
        return self._away_since + self._timeout - time.monotonic()


def _may_repeat(answer: Answer, call: Call) -> bool:
    return call.repeatable or delivered_of(answer) == "no"


def _retry_after(answer: Answer) -> float | None:
    """The seconds that an answer asks for, and a little more by chance."""
    text = answer.fields.get("retry-after", "")
    if text.isdecimal():
        seconds = float(text)
    else:
        try:
            at = email.utils.parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = max(0.0, (at.astimezone(UTC) - datetime.now(UTC)).total_seconds())
    return seconds + seconds * SPREAD * random.random()
