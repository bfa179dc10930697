"""The environment whose making is timed: it borrows its service when it is made."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import gymnasium


class Borrowing(gymnasium.Env[Any, Any]):
    """Has a service that is ready from its making until it is closed.

    Args:
        spec: what to borrow.
        acquire: who lends it.
    """

    def __init__(self, spec: Any, acquire: Callable[..., Any]) -> None:
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Discrete(2)
        self._borrowed = ExitStack()
        self.service = self._borrowed.enter_context(acquire(spec, timeout=60.0))

    def close(self) -> None:
        """Give the service back."""
        self._borrowed.close()


gymnasium.register("forebay/Borrowing-v0", f"{__name__}:Borrowing")
