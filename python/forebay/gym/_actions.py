"""How a batch of actions becomes one message for each environment."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import iterate

from forebay.errors import ConfigError
from forebay.rpc._internal import Message, message

CACHED_ACTIONS = 1024
"""Messages of integer actions that are kept."""


@functools.lru_cache(maxsize=CACHED_ACTIONS)
def _integer(action: int) -> Message:
    return message("step_integer", (action,))


class Actions:
    """Encodes the actions of one vector environment.

    What reaches an environment is what `SyncVectorEnv` would give it. The common cases, an array of
    the space's own dtype and shape, travel as a number or as bytes, which cost a fifth of a pickled
    numpy object; anything else is taken apart by gymnasium's `iterate` and pickled.

    Args:
        single: action space of one environment.
        batched: of all of them.
        count: how many there are.
    """

    __slots__ = ("_batched", "_count", "_dtype", "_shape")

    def __init__(self, single: Space[Any], batched: Space[Any], count: int) -> None:
        self._batched = batched
        self._count = count
        fixed = type(single) in (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)
        self._dtype = single.dtype if fixed or type(single) is spaces.MultiBinary else None
        self._shape = (count, *(single.shape or ()))

    def encode(self, actions: Any) -> Sequence[Message]:
        """One message for each environment.

        Raises:
            ConfigError: there are more or fewer actions than environments.
        """
        is_array = type(actions) is np.ndarray
        if is_array and actions.dtype == self._dtype and actions.shape == self._shape:
            return self._encode_array(actions)
        each = list(iterate(self._batched, actions))
        if len(each) != self._count:
            raise ConfigError(
                f"{len(each)} actions were given for {self._count} environments: one each is needed"
            )
        return [message("step", (action,)) for action in each]

    def _encode_array(self, actions: np.ndarray[Any, Any]) -> Sequence[Message]:
        if actions.ndim > 1:
            return [message("step_array", (row.tobytes(),)) for row in actions]
        if actions.dtype == np.int64:
            return [_integer(action) for action in actions.tolist()]
        return [message("step", (action,)) for action in actions]
