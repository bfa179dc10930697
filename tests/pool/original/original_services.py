"""A service such as CompilerGym has them: state that actions change, a cost, a reward."""

from __future__ import annotations

import os

import forebay


class Tuning(forebay.Service):
    """A program whose cost the actions change; the reward of an action is the cost it saved."""

    def __init__(self, program: str = "crc32") -> None:
        self.program = program
        self.begin()

    def begin(self) -> list[int]:
        """Start an episode."""
        self.actions: list[int] = []
        self.previous = self.cost()
        return self.actions

    def cost(self) -> int:
        """What the program costs after the actions."""
        return 1_000 + len(self.program) - sum(self.actions)

    def apply(self, action: int) -> int:
        """Take an action; the reward."""
        self.act(action)
        return self.reward()

    def act(self, action: int) -> list[int]:
        """Take an action and leave the reward for later."""
        if not 0 <= action < 100:
            raise ValueError(f"action {action} is out of range")
        self.actions.append(action)
        return self.actions

    def reward(self) -> int:
        """What was saved since the last reward."""
        saved, self.previous = self.previous - self.cost(), self.cost()
        return saved

    def about(self) -> tuple[str, list[int], int]:
        """The state."""
        return self.program, self.actions, self.cost()

    def die(self) -> None:
        """End without a word."""
        os._exit(6)

    def reset(self) -> None:
        """Forget the episode."""
        self.begin()
