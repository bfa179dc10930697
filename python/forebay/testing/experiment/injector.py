"""What a fault is to the experiment: something that is begun, described and undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from forebay.testing.experiment.schedule import Planned

__all__ = ["Injected", "Injector", "nothing"]


def nothing() -> None:
    """Undo a fault that needs no undoing."""


class Injected(NamedTuple):
    """A fault that was injected.

    Attributes:
        text: what was done to what.
        undo: ends it; called once, from the thread that injected it, and never fails because what
            was struck has ended.
    """

    text: str
    undo: Callable[[], None] = nothing


class Injector(Protocol):
    """Injects faults of one kind."""

    def reason_not(self) -> str | None:
        """Why this machine or this server does not allow it; None: it does."""

    def inject(self, planned: Planned) -> Injected | None:
        """Inject it; None: there is nothing to strike at the moment."""
