"""How many submissions a token may make in a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from forebay.gateway.problems import Problem

__all__ = ["Rates"]


class Rates:
    """Counts the submissions of tokens that have a rate: a token bucket for each.

    A bucket holds a second's worth, so that a burst of that many is taken at once.

    Loop affinity: the gateway's.

    Args:
        rates: submissions a second, by the name of the token.
        timer: seconds that never go back.
    """

    def __init__(
        self, rates: Mapping[str, float], *, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = rates
        self._timer = timer
        self._left = {name: max(1.0, rate) for name, rate in rates.items()}
        self._filled_at = dict.fromkeys(rates, timer())

    def take(self, name: str) -> None:
        """Count one submission of a token.

        Raises:
            Problem: it has made as many as it may.
        """
        rate = self._rates.get(name)
        if rate is None:
            return
        now = self._timer()
        left = self._left[name] + (now - self._filled_at[name]) * rate
        self._filled_at[name] = now
        left = min(left, max(1.0, rate))
        if left < 1:
            self._left[name] = left
            raise _too_many(name, rate, (1 - left) / rate)
        self._left[name] = left - 1


def _too_many(name: str, rate: float, wait_s: float) -> Problem:
    seconds = max(1, math.ceil(wait_s))
    return Problem(
        429,
        "limit",
        f"token {name} may submit {rate:g} requests a second",
        object="rate",
        limit=rate,
        next=f"wait {seconds} s",
        headers=[(b"retry-after", b"%d" % seconds)],
    )
