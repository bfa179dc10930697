"""The variables that functions sent by value share in a worker: those of its main module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.pool._internal import received

__all__ = ["Variables"]


class Variables:
    """Whose variables the main module has.

    A function that is sent by value brings the variables that it uses, and unpickling assigns them.
    So a function that was unpickled stays right until another pickle of a function comes.

    Thread affinity: the thread that runs the worker's calls, one after the other.
    """

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: tuple[bytes, Callable[..., Any]] | None = None
        """The function whose variables these are, and its pickle."""

    def function(self, data: bytes) -> Callable[..., Any]:
        """A function with its variables; it is unpickled again where another one came since."""
        if self._newest is None or self._newest[0] != data:
            self._newest = None  # an error may leave some of the new variables
            self._newest = data, received(data)
        return self._newest[1]
