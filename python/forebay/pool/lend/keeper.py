"""Starting the keeper process."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
from typing import Any

from forebay import _core
from forebay.errors import ConfigError

_STUB = """
import sys, _imp, _frozen_importlib
spec = _frozen_importlib.ModuleSpec("_core", None, origin=sys.argv[1])
core = _imp.create_dynamic(spec)
_imp.exec_dynamic(core)
core.run_keeper(3, 4, 5, sys.argv[2])
"""
"""Loads the extension into a bare interpreter and never returns to Python: 8 ms, 4.5 MB.

The keeper is an entry point of the extension because the wheel of an extension carries no second
program.
"""

_ABOVE = 6
"""Descriptors are moved up here first, so that placing one at 3 to 5 cannot overwrite another."""


def start_keeper(core: _core.Pool) -> int | None:
    """Start the keeper of a pool unless one is running.

    Returns:
        The pidfd to attach, which the caller closes; None if a keeper is running.
    """
    given = core.handover()
    if given is None:
        return None
    moved: list[int] = []
    try:
        # An extend that fails half-way keeps what it has, so that all of it is closed.
        moved.extend(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for fd in given)
        pid = _spawn(moved)
        return os.pidfd_open(pid)
    finally:
        for descriptor in (*given, *moved):
            os.close(descriptor)


def _spawn(descriptors: list[int]) -> int:
    if not sys.executable:
        raise ConfigError(
            "sys.executable is empty, so no keeper can be started; set it to a Python interpreter"
        )
    arguments = [sys.executable, "-I", "-S", "-c", _STUB, _core.__file__, tempfile.gettempdir()]
    # It shares our stderr, for a last message. It has not our stdout: a reader of a pipe there
    # would wait for the keeper's end too.
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    actions += [
        (os.POSIX_SPAWN_DUP2, descriptor, 3 + index) for index, descriptor in enumerate(descriptors)
    ]
    # A session of its own from its first instruction on: a Ctrl-C that came while its interpreter
    # starts would end it.
    return os.posix_spawn(
        sys.executable,
        arguments,
        os.environ,
        file_actions=actions,
        setsigmask=[],
        setsigdef=[signal.SIGCHLD],  # ignored, as in some programs, it would have no child to reap
        setsid=True,
    )
