"""The templates of one pool: their numbers, for its keepers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from forebay._working_directory import path_to_enter
from forebay.pool.lend.kind import environment_of
from forebay.pool.service import template
from forebay.pool.service.threads import template_variables

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.service.application import Application

Make = tuple[Any, bytes]
"""How a service is made: the reference to its class, and its arguments."""


class Templates:
    """Numbers templates, and describes each once to each keeper.

    Not thread-safe: the pool's lock is held around every call.
    """

    __slots__ = ("_core", "_described", "_numbers", "_spares")

    def __init__(self, core: _core.Pool, spares: int) -> None:
        self._core = core
        self._spares = spares
        self._numbers: dict[tuple[Application, Make | None], int] = {}
        self._described: set[tuple[int, int]] = set()
        """The epoch of a keeper and the number of a template that was described to it."""

    def number(self, application: Application, make: Make | None) -> int:
        """The number of the template of an application; with `make`, of one service of it."""
        return self._numbers.setdefault((application, make), len(self._numbers))

    def describe(self, number: int, epoch: int) -> None:
        """Tell the keeper of this epoch how a template is started, unless it knows."""
        if (epoch, number) in self._described:
            return
        application, make = list(self._numbers)[number]
        command_line = template.command_line()
        environment = environment_of(template_variables(os.environ))
        setup = template.setup_of(application, make)
        self._core.describe(
            number,
            command_line,
            environment,
            os.fsencode(path_to_enter()),
            setup,
            self._spares,
        )
        self._described.add((epoch, number))
