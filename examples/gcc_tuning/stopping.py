"""Stop the demo on the first signal, and let nothing disturb the clean-up."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["Stopped", "arm"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S = 0.01
"""After so long it is raised again, where a finalizer swallowed it."""


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
    sys.unraisablehook = _raise_again


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Stopped(number)


def _raise_again(unraisable: UnraisableHookArgs) -> None:
    """A signal may come while a finalizer runs, and Python ignores what a finalizer raises."""
    stopped = unraisable.exc_value
    if not isinstance(stopped, Stopped):
        sys.__unraisablehook__(unraisable)
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise Stopped(stopped.signal)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
