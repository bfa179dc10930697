"""Delays between attempts to connect."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from forebay.errors import ConfigError
from forebay.transport import backoff


def test_delays_stay_below_a_bound_that_grows_to_the_longest() -> None:
    bounds = [0.1, 0.3, 0.9, 1.0, 1.0, 1.0]
    for seed in range(50):
        delays = islice(backoff(0.1, 1.0, factor=3.0, random_=random.Random(seed)), len(bounds))
        assert all(0 <= delay <= bound for delay, bound in zip(delays, bounds, strict=True))


def test_delays_are_spread_and_repeatable() -> None:
    first = list(islice(backoff(random_=random.Random(7)), 5))
    assert first == list(islice(backoff(random_=random.Random(7)), 5))
    assert len({next(backoff()) for _ in range(100)}) == 100


@pytest.mark.parametrize("wrong", [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0)])
def test_times_that_make_no_sense_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="0 < first <= longest"):
        backoff(*wrong)
