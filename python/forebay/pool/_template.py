"""The program of a template: import an application, then fork services from it.

A template is single-threaded, because a fork copies one thread and every lock as it is.
It never runs the application; what it has imported is frozen out of the collector's sight, so that
its pages stay shared with the services (measured: 3.4 MB of private memory per worker instead of
63 MB).
"""

from __future__ import annotations

import faulthandler
import gc
import marshal
import os
import sys
from typing import Any

from forebay import _core
from forebay.pool import _worker
from forebay.pool._application import Application

FD = 3
"""The inherited socket to the keeper."""


def command_line() -> list[bytes]:
    """How a template process is started: this interpreter, which must find this package first."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = (
        f"import sys; sys.path.insert(0, {package!r});"
        " from forebay.pool._template import main; main()"
    )
    return [os.fsencode(part) for part in (sys.executable, "-c", code)]


def setup_of(
    application: Application, *, path: list[str] | None = None, argv: list[str] | None = None
) -> bytes:
    """What a template is told first: the application, import path, arguments (this process's)."""
    path, argv = path or sys.path, argv or sys.argv
    return marshal.dumps((application.kind, application.target, path, argv))


def main() -> None:
    """Be a template until the keeper ends; in a forked child: be a service."""
    nursery = _core.Nursery(FD)
    told = nursery.setup()
    if told is None:
        return
    setup, directory = told
    faulthandler.enable()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    reason = _import(*marshal.loads(setup))
    if reason is not None:
        nursery.unfit(reason.encode(errors="replace"))
        return
    nursery.ready()
    _worker.prepare(directory)
    _worker.main(nursery)


def _import(kind: Any, target: str, path: list[str], argv: list[str]) -> str | None:
    """Import the application; the reason why services cannot be forked from it, if there is one."""
    sys.path[:] = path
    sys.argv[:] = argv
    try:
        Application(kind, target).load()
    except BaseException:
        import traceback

        # Any way of failing, SystemExit of a script included, is the user's to see.
        shown = target or "nothing"
        return f"the template cannot import {shown}:\n{traceback.format_exc()}"
    extra = _extra_threads()
    if extra:
        return (
            f"importing {target} started {len(extra)} threads ({', '.join(extra)}), and a process "
            "with threads cannot be forked; start them in the service's __init__ instead"
        )
    _worker.warm()
    gc.collect()
    gc.freeze()
    return None


def _extra_threads() -> list[str]:
    """Names of the threads beside the main one, by Python's name where it knows them."""
    tasks = sorted(map(int, os.listdir("/proc/self/task")))[1:]
    if not tasks:
        return []  # without importing threading, whose at-fork handler every fork would pay for
    import threading

    known = {thread.native_id: thread.name for thread in threading.enumerate()}
    names = []
    for task in tasks:
        with open(f"/proc/self/task/{task}/comm") as file:
            names.append(known.get(task) or file.read().strip())
    return names
