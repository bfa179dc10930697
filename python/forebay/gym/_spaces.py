"""The spaces of a vector environment: checked when it is made, built when they are read."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from forebay.errors import ConfigError
from forebay.gym._loss import SpacesError

if TYPE_CHECKING:
    from forebay.gym._slot import Slot

ObservationMode = str | tuple["Space[Any]", "Space[Any]"]


class VectorSpaces:
    """Single and batched spaces.

    Args:
        slots: one for each environment.
        mode: "same", "different", or the batched and the single observation space.

    Raises:
        ConfigError: there is no such mode.
        SpacesError: the environments do not agree.
    """

    def __init__(self, slots: Sequence[Slot | None], mode: ObservationMode) -> None:
        if mode not in ("same", "different") and not _is_pair(mode):
            raise ConfigError(
                f"observation_mode is {mode!r}; give 'same', 'different', or the batched and the"
                " single observation space"
            )
        self._mode = mode
        self._pickled = [_pickled(slot) for slot in slots]
        self._slots = list(slots)
        for index in range(1, len(slots)):
            self.check(slots, index)

    @property
    def description(self) -> Any:
        """Of the first environment."""
        return _known(self._slots[0]).description

    @functools.cached_property
    def _each(self) -> list[Any]:
        return [cast("Slot", slot).spaces for slot in self._slots]

    @functools.cached_property
    def single_observation(self) -> Space[Any]:
        """Of one environment."""
        if _is_pair(self._mode):
            return cast("tuple[Space[Any], Space[Any]]", self._mode)[1]
        return cast("Space[Any]", self._first[0])

    @functools.cached_property
    def observation(self) -> Space[Any]:
        """Of all environments."""
        if _is_pair(self._mode):
            return cast("tuple[Space[Any], Space[Any]]", self._mode)[0]
        if self._mode == "different":
            return batch_differing_spaces([spaces[0] for spaces in self._each])
        return batch_space(self.single_observation, len(self._slots))

    @functools.cached_property
    def single_action(self) -> Space[Any]:
        """Of one environment."""
        return cast("Space[Any]", self._first[1])

    @functools.cached_property
    def action(self) -> Space[Any]:
        """Of all environments."""
        return batch_space(self.single_action, len(self._slots))

    @functools.cached_property
    def _first(self) -> Any:
        return cast("Slot", self._slots[0]).spaces

    def check(self, slots: Sequence[Slot | None], index: int) -> None:
        """Raise SpacesError where an environment does not fit the first one."""
        slot = slots[index]
        # Equal pickles are equal spaces; others may be equal all the same.
        if _pickled(slot) == self._pickled[0] and not _is_pair(self._mode):
            return
        observation, action = cast("Slot", slot).spaces
        expected = self.single_observation
        if self._mode == "same" and observation != expected:
            raise SpacesError(
                f"environment {index} has the observation space {observation}, and the first one"
                f" {expected}; if that is meant, use observation_mode='different'"
            )
        if not is_space_dtype_shape_equiv(observation, expected):
            raise SpacesError(
                f"environment {index} has the observation space {observation}, which does not share"
                f" shape and dtype with {expected}, so that they cannot be batched"
            )
        if action != self.single_action:
            raise SpacesError(
                f"environment {index} has the action space {action}, and the first one"
                f" {self.single_action}; they must be equal to be batched"
            )


def _is_pair(mode: Any) -> bool:
    return (
        isinstance(mode, tuple) and len(mode) == 2 and all(isinstance(each, Space) for each in mode)
    )


def _known(slot: Slot | None) -> Any:
    assert slot is not None
    return slot.known


def _pickled(slot: Slot | None) -> bytes:
    return cast("bytes", _known(slot).description.spaces)
