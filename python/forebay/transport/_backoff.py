"""Delays between attempts, so that many clients do not come back at the same moment."""

from __future__ import annotations

import random
from collections.abc import Iterator

from forebay.errors import ConfigError

__all__ = ["backoff"]


def backoff(
    first: float = 0.05,
    longest: float = 30.0,
    *,
    factor: float = 2.0,
    random_: random.Random | None = None,
) -> Iterator[float]:
    """Seconds to wait before each further attempt, without end.

    Each is drawn evenly between 0 and a bound that grows from `first` by `factor` up to `longest`
    ("full jitter"): clients that lost one server together come back spread over the whole time.

    Args:
        first: bound of the first delay, in seconds.
        longest: bound of every delay.
        factor: by which the bound grows.
        random_: where the randomness comes from; give a seeded one for a reproducible sequence.

    Raises:
        ConfigError: a time is not positive, or the factor is below 1.

    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Example: `for delay in backoff(): ...` around `connect`, with `await asyncio.sleep(delay)`.
    """
    if first <= 0 or longest < first or factor < 1:
        raise ConfigError(
            f"backoff(first={first:g}, longest={longest:g}, factor={factor:g}) needs"
            " 0 < first <= longest and factor >= 1"
        )
    return _delays(first, longest, factor, random_ or random.Random())


def _delays(bound: float, longest: float, factor: float, source: random.Random) -> Iterator[float]:
    while True:
        yield source.uniform(0.0, bound)
        bound = min(longest, bound * factor)
