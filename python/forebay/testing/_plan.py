"""What chaos does next, decided from a seed alone: no process, no clock."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from forebay.errors import ConfigError

Action = Literal["kill", "stop", "continue", "delay"]
ACTIONS: tuple[Action, ...] = get_args(Action)


class Decision(NamedTuple):
    """One strike to be.

    Attributes:
        after: seconds since the one before.
        action: what is done.
        choice: which of the processes that are there then, from 0 up to, but not including, 1.
        hold: seconds for which a delayed process is stopped.
    """

    after: float
    action: Action
    choice: float
    hold: float


def decisions(
    seed: int, *, actions: Sequence[Action], rate: float, max_delay: float
) -> Iterator[Decision]:
    """Decisions without end, the same ones for the same arguments.

    The intervals are exponential, so that strikes come in bursts and in lulls, as accidents do.

    Raises:
        ConfigError: an action is unknown, none is given, or a number is not above 0.
    """
    unknown = [action for action in actions if action not in ACTIONS]
    if unknown or not actions:
        raise ConfigError(
            f"chaos actions={tuple(actions)!r}: give one or more of {', '.join(ACTIONS)}"
        )
    if rate <= 0 or max_delay <= 0:
        raise ConfigError(
            f"chaos rate={rate:g} and max_delay={max_delay:g} must be above 0"
            " (strikes per second, seconds)"
        )
    return _drawn(random.Random(seed), tuple(actions), rate, max_delay)


def _drawn(
    source: random.Random, actions: tuple[Action, ...], rate: float, max_delay: float
) -> Iterator[Decision]:
    while True:
        # All four are drawn each time, so that what one turns out to be moves no later one.
        yield Decision(
            after=source.expovariate(rate),
            action=source.choice(actions),
            choice=source.random(),
            hold=source.uniform(0, max_delay),
        )
