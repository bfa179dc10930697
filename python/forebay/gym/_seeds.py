"""The seeds of a vector environment's `reset`, checked as gymnasium does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.errors import ConfigError

MASK = "reset_mask"


def seeds_of(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """One seed for each environment.

    Raises:
        ConfigError: there are more or fewer seeds than environments.
    """
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + index for index in range(count)]
    if len(seed) != count:
        raise ConfigError(f"{len(seed)} seeds were given for {count} environments: give one each")
    return [None if each is None else int(each) for each in seed]


def mask_of(
    options: dict[str, Any] | None, count: int
) -> tuple[tuple[int, ...], dict[str, Any] | None]:
    """Which environments to reset, and the options without the mask, which are a copy.

    Raises:
        TypeError: the mask is no array of bool.
        ConfigError: it has another length, or says that none is to be reset.
    """
    if options is None or MASK not in options:
        return tuple(range(count)), options
    mask = options[MASK]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(f"options[{MASK!r}] must be a numpy array of bool, not {mask!r}")
    if mask.shape != (count,):
        raise ConfigError(f"options[{MASK!r}] has the shape {mask.shape}, not ({count},)")
    if not mask.any():
        raise ConfigError(f"options[{MASK!r}] is False for every environment; one must be True")
    rest = {name: value for name, value in options.items() if name != MASK}
    return tuple(mask.nonzero()[0].tolist()), rest
