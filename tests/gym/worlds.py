"""Small environments for the vector environment's tests: each kind of space, and ways to fail."""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Result = tuple[Any, float, bool, bool, dict[str, Any]]


class World(gymnasium.Env[Any, Any]):
    """Observations and ends of episodes drawn from its own generator; infos now and then."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space = observation
        self.action_space = action
        self.render_mode = "rgb_array"
        self.difficulty = 1
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        info = {} if options is None else {"asked": str(sorted(options.items()))}
        return self._observe(), info

    def step(self, action: Any) -> Result:
        self.steps += 1
        draw = self.np_random.random()
        told = float(np.sum(np.asarray(action, dtype=float))) if _is_number(action) else 0.0
        info: dict[str, Any] = {}
        if draw < 0.3:
            info = {"draw": draw, "steps": self.steps, "nested": {"text": f"{draw:.3f}"}}
        return self._observe(), told + draw, draw > 0.9, self.steps >= 12, info

    def render(self) -> Any:
        return np.full((4, 5, 3), self.steps, np.uint8)

    def add(self, number: int, *, times: int = 1) -> int:
        return self.steps + number * times

    def _observe(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()


def _is_number(action: Any) -> bool:
    return isinstance(action, (int, float, np.ndarray, np.number))


SPACES: dict[str, tuple[spaces.Space[Any], spaces.Space[Any]]] = {
    "box": (
        spaces.Box(-1, 1, (2, 3), np.float32),
        spaces.Box(-1, 1, (2,), np.float32),
    ),
    "discrete": (spaces.Discrete(9, start=-3), spaces.Discrete(4, start=2)),
    "multi": (spaces.MultiDiscrete([3, 4]), spaces.MultiDiscrete([3, 4])),
    "binary": (spaces.MultiBinary(5), spaces.MultiBinary([2, 2])),
    "dict": (
        spaces.Dict(
            {
                "image": spaces.Box(0, 255, (4, 4), np.uint8),
                "pair": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (), np.float64))),
            }
        ),
        spaces.Dict({"turn": spaces.Discrete(2), "push": spaces.Box(0, 1, (1,), np.float64)}),
    ),
    "tuple": (
        spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0, 1, (3,), np.float16))),
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
    ),
    "text": (
        spaces.Dict({"word": spaces.Text(5), "count": spaces.Discrete(3)}),
        spaces.Discrete(2),
    ),
    "sequence": (spaces.Sequence(spaces.Discrete(3)), spaces.Discrete(2)),
}


def make(kind: str) -> World:
    """A world with one of SPACES."""
    return World(*SPACES[kind])


class Wide(World):
    """Its box has other bounds for each size, and its action space can differ."""

    def __init__(self, high: float = 1.0, actions: int = 2, width: int = 2) -> None:
        super().__init__(spaces.Box(-high, high, (width,), np.float32), spaces.Discrete(actions))


class Sick(World):
    """Fails as its action says."""

    GOES_ON, DIES, RAISES, HANGS = range(4)

    def __init__(self) -> None:
        super().__init__(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4))
        self.note = "as made"

    def step(self, action: Any) -> Result:
        if action == self.DIES:
            print("the wheels came off", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(7)
        if action == self.RAISES:
            raise ValueError("no such gear")
        while action == self.HANGS:
            time.sleep(1)
        observation, _, _, _, info = super().step(action)
        return observation, 1.0, False, False, info


class SickWords(Sick):
    """The same with observations that have no fixed shape."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Text(8)


class Unready(World):
    """Its function raises."""

    def __init__(self) -> None:
        raise LookupError("the level file is missing")


class Loose(World):
    """Draws from the generators that a process has one of."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(0, 1, (2,), np.float64), spaces.Discrete(2))
        self.drawn = (random.random(), float(np.random.rand()))


class Hasty(World):
    """Counts the processes that made one: `pid`."""

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(2), spaces.Discrete(2))
        self.pid = os.getpid()
        self.made = time.monotonic()


class Slow(World):
    """Takes a second to make."""

    def __init__(self) -> None:
        time.sleep(1)
        super().__init__(spaces.Discrete(2), spaces.Discrete(2))
