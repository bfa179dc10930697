"""The program of a template: import an application, then fork services from it.

A template is single-threaded, because a fork copies one thread and every lock as it is.
It never runs the application. The garbage collector ignores what it has imported (`gc.freeze`), so
that these pages stay shared with the services (measured: 3.4 MB of private memory per worker, 63 MB
without).
"""

from __future__ import annotations

import faulthandler
import gc
import marshal
import os
import sys
from typing import Any

from forebay import _core
from forebay._package import PATH_ENTRY
from forebay.errors import ConfigError
from forebay.pool.service import worker
from forebay.pool.service.application import Application
from forebay.pool.service.imports import Imports
from forebay.pool.service.threads import extra_threads

FD = 3
"""The inherited socket to the keeper."""


def command_line() -> list[bytes]:
    """The command line of a template: this interpreter, which must find this package first."""
    code = (
        f"import sys; sys.path.insert(0, {PATH_ENTRY!r});"
        " from forebay.pool.service.template import main; main()"
    )
    return [os.fsencode(part) for part in (sys.executable, *_flags(), "-c", code)]


def _flags() -> list[str]:
    """The options that this interpreter was started with: `-O`, `-I`, `-X dev`, `-W error`."""
    import subprocess

    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


def setup_of(
    application: Application,
    make: tuple[Any, bytes] | None,
    *,
    path: list[str] | None = None,
    argv: list[str] | None = None,
) -> bytes:
    """The first message to a template: the application, and this process's import path, arguments.

    With `make`, also the service that it makes before it forks, so that each fork has it.
    """
    path, argv = path or sys.path, argv or sys.argv
    return marshal.dumps((application.kind, application.target, path, argv, make))


def main() -> None:
    """Be a template until the keeper ends; in a forked child: be a service."""
    keeper = _core.KeeperLink(FD)
    told = keeper.setup()
    if told is None:
        return
    setup, directory = told
    faulthandler.enable()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    *application, make = marshal.loads(setup)
    target = worker.Target()
    with Imports(application[1]) as imports:
        reason = _import(*application) or _make(target, make)
    reason = reason or _frozen(imports)
    if reason is not None:
        keeper.unfit(reason.encode(errors="replace"))
        return
    keeper.ready()
    worker.prepare(directory)
    worker.main(keeper, target)


def _import(kind: Any, target: str, path: list[str], argv: list[str]) -> str | None:
    """Import the application; the reason why that failed, if it did."""
    sys.path[:] = path
    sys.argv[:] = argv
    try:
        Application(kind, target).load()
    except BaseException:
        # The user gets the reason of any failure, SystemExit of a script included.
        return f"the template cannot import {target or 'nothing'}:\n{_traceback()}"
    return None


def _make(target: worker.Target, make: tuple[Any, bytes] | None) -> str | None:
    """Make the service of a class that is forked per lease; the reason why that failed."""
    if make is None:
        return None
    try:
        target._control(worker.START, make)
    except BaseException:
        return f"its constructor raised in the template:\n{_traceback()}"
    return None


def _traceback() -> str:
    import traceback

    return traceback.format_exc()


def _frozen(imports: Imports) -> str | None:
    """Prepare to fork; the reason why this process cannot fork, if there is one."""
    try:
        extra = extra_threads()
    except ConfigError as error:
        return str(error)
    if extra:
        named = [f"{name} {imports.of(thread)}".rstrip() for thread, name in extra.items()]
        count = f"{len(extra)} threads" if len(extra) > 1 else "a thread"
        return (
            "its import, or its constructor where it is forked for each lease, started "
            f"{count} ({'; '.join(named)}), and a process with threads cannot be forked; "
            "start them, or import what starts them, in the service's __init__ or its first call, "
            "or within the request of an application"
        )
    worker.warm()
    gc.collect()
    gc.freeze()
    return None
