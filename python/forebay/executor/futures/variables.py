"""The variables that functions sent by value share in a worker: those of its main module."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from forebay.pool._internal import received

__all__ = ["Variables"]


class Variables:
    """Whose variables the main module has, and which of them the initializer has assigned.

    A function that is sent by value brings the variables that it uses, and unpickling assigns them.
    So a function that was unpickled stays right until another pickle of a function comes. What the
    initializer has assigned is the worker's own, and no pickle replaces it.

    Thread affinity: the thread that runs the worker's calls, one after the other.
    """

    __slots__ = ("_newest", "_own")

    def __init__(self) -> None:
        self._newest: tuple[bytes, Callable[..., Any]] | None = None
        """The function whose variables these are, and its pickle."""
        self._own: frozenset[str] = frozenset()
        """The names of those that the initializer has assigned."""

    def initialise(self, data: bytes) -> None:
        """Run an initializer, and note what it assigns."""
        function, arguments = received(data)
        before = dict(_of_main())
        function(*arguments)
        self._own = frozenset(
            name
            for name, value in _of_main().items()
            if name not in before or before[name] is not value
        )

    def function(self, data: bytes) -> Callable[..., Any]:
        """A function with its variables; it is unpickled again where another one came since."""
        if self._newest is None or self._newest[0] != data:
            self._newest = None  # an error may leave some of the new variables
            self._newest = data, self.received(data)
        return self._newest[1]

    def received(self, data: bytes) -> Any:
        """What was pickled, while what the initializer has assigned stays as it is."""
        variables = _of_main()
        own = {name: variables[name] for name in self._own if name in variables}
        try:
            return received(data)
        finally:
            variables.update(own)


def _of_main() -> dict[str, Any]:
    return vars(sys.modules["__main__"])
