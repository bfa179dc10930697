"""The program of a service process: make the service, then answer its calls one after another."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from forebay import _core, rpc
from forebay.errors import ConfigError
from forebay.pool._application import resolve

START = "@start"
RESET = "@reset"


class Target:
    """What calls are made on: nothing until the service is made, then the service's public methods."""

    __slots__ = ("service",)

    def __init__(self) -> None:
        self.service: Any = None

    def control(self, name: str, args: tuple[Any, ...]) -> None:
        """Answer what the pool itself asks."""
        if name == START:
            self.start(*args)
        elif name == RESET:
            self.service.reset()
        else:
            raise ConfigError(f"a service knows no {name!r}")

    def start(self, reference: tuple[str, str] | bytes, arguments: bytes) -> None:
        """Make the service. Its arguments are unpickled here, where its module is imported."""
        service = resolve(reference)
        args, kwargs = pickle.loads(arguments)  # from the process of this user that owns this one
        self.service = service(*args, **dict(kwargs))

    def method(self, name: str) -> Callable[..., Any]:
        """A public method of the service."""
        found = getattr(self.service, name)
        return found  # type: ignore[no-any-return]


def warm() -> None:
    """Do once in the template what every service would do first, so that its pages are shared."""
    pickle.loads(pickle.dumps(((), {}), protocol=5))


def enter(directory: str) -> None:
    """Make `directory` the next service's place for temporary files.

    Done in the template before it forks: there the pages are its own already, a child would have to copy them.
    """
    os.environ["TMPDIR"] = directory
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = directory


def main(descriptor: int) -> None:
    """Serve on `descriptor` until the process is ended."""
    _reseed()
    target = Target()
    connection = _core.Connection(descriptor)
    rpc.serve_connection(connection, target.method, codec="pickle", on_control=target.control)


def _reseed() -> None:
    """Give this process random numbers of its own; `random` reseeds itself after a fork, numpy does not."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
