"""Stop the demo on the first signal, and let nothing disturb the clean-up."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["Stopped", "arm"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal asked to stop; every `with` and `finally` on the way out cleans up.

    Attributes:
        signal: which one.
    """

    def __init__(self, number: int):
        self.signal = signal.Signals(number)
        super().__init__(f"stopped by {self.signal.name}")

    @property
    def exit_code(self) -> int:
        """The exit code that a shell gives to a program ended by this signal."""
        return 128 + self.signal


def arm() -> None:
    """Raise `Stopped` in the main thread at the first SIGINT or SIGTERM; ignore the later ones."""
    for number in _SIGNALS:
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)
