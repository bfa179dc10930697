"""The start of an executor of functions: its dispatcher, its supervisor, its collector."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Literal

from msgspec import msgpack

from forebay import _core
from forebay.errors import ConfigError
from forebay.executor.futures.calls import CALL, Calls
from forebay.executor.futures.folder import Folder
from forebay.executor.futures.output import OutputDoor
from forebay.executor.futures.worker import CallWorker, manifest
from forebay.executor.server.plan import Plan
from forebay.executor.server.supervisor import Supervisor
from forebay.pool._internal import MAIN_ALIAS

_logger = logging.getLogger(__name__)

UNKNOWN_BYTES = 1_000_000
"""The need of a call if the caller gives none; the use of earlier calls replaces a smaller one."""

FOR_EVER = 2**53
"""Milliseconds, bytes or calls: a worker stays for as long as its executor, unless asked."""

QUEUED_MAX = 2**32 - 1
"""Calls that wait: as many as memory holds, as in concurrent.futures; `buffersize` bounds a map."""

MAIN_NAMES = ("__main__", MAIN_ALIAS)

OPTIONS = {"oom_score": 500}
"""Of every worker: where memory runs out, one of them ends before the program does."""


def main_module() -> tuple[Literal["main", "path", "none"], str]:
    """What another process imports to have what the main module defines.

    As in multiprocessing's spawn: nothing if the main module is an interactive session,
    `python -c`, or the `__main__` of a package, which is a program and not a library.
    """
    main = sys.modules["__main__"]
    # A worker may return an object whose class has the alias as its module.
    sys.modules.setdefault(MAIN_ALIAS, main)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        runs_package = spec.name == "__main__" or spec.name.endswith(".__main__")
        return ("none", "") if runs_package else ("main", spec.name)
    path = getattr(main, "__file__", None)
    if path is None or not os.path.exists(path):
        return "none", ""
    return "path", os.path.abspath(path)


def module_of(function: Callable[..., Any]) -> str | None:
    """The module that a template imports for a function; None where that is its main module."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__module__", None) or type(function).__module__
    return None if name in (*MAIN_NAMES, "builtins") else str(name)


def refuse_unimportable(function: Callable[..., Any]) -> None:
    """Raise where a worker could not find a function.

    Raises:
        ConfigError: it is defined in a main module that another process cannot import.
    """
    if getattr(function, "__module__", None) in MAIN_NAMES and main_module()[0] == "none":
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(
            f"function {name} is defined in an interactive session, in python -c or in the "
            "__main__.py of a package, where a worker cannot find it; put it into a module, or "
            "make the executor with by_value=True"
        )


class _Watcher:
    """Passes what its supervisor finds out to the calls of an executor."""

    def __init__(self) -> None:
        self.calls: Calls | None = None

    def loading(self) -> None:
        """Nobody can ask for it."""

    def loaded(self, manifest: dict[str, Any], text: bytes) -> None:
        """The template runs."""

    def unfit(self, reason: str, *, serves: bool) -> None:
        """No worker can be started."""
        if self.calls is not None:
            self.calls.give_up(reason)

    def changed(self, paths: list[str]) -> None:
        """No sources are watched."""

    def warmed(self, services: list[tuple[str, list[int]]]) -> None:
        """There are no services."""

    def idle(self) -> None:
        """An executor stays until it is shut down."""

    def rebound(self) -> None:
        """An executor has no socket that others use."""

    def warned(self, text: str) -> None:
        """A notice of the dispatcher, which is only logged here."""
        _logger.warning("%s", text)

    def broken(self, error: BaseException) -> None:
        """The supervisor failed."""
        if self.calls is not None:
            self.calls.give_up(f"the supervisor of this executor failed: {error!r}")


def start(
    function: Callable[..., Any],
    *,
    max_workers: int,
    memory_bytes: int | None,
    uses_max: int | None,
) -> Calls:
    """Start what runs the calls of an executor; returns before its template does.

    Args:
        function: of the first call; its module is imported by the template.
        max_workers: calls at once.
        memory_bytes: what one call needs at most, if that is known.
        uses_max: calls after which a worker is replaced.
    """
    folder = Folder()
    side, output = os.path.join(folder.path, "side"), os.path.join(folder.path, "output")
    told = manifest(CALL)
    dispatcher = _core.Dispatcher(_settings(side, max_workers, uses_max))
    dispatcher.install(told)
    module = module_of(function)
    modules = () if module is None else (module,)
    spec = functools.partial(CallWorker.spec, *main_module(), modules, output, told)
    door = OutputDoor(output)
    watcher = _Watcher()
    supervisor = Supervisor(dispatcher, Plan(spec, side, OPTIONS, (), reloads=False), watcher)

    def close() -> None:
        supervisor.close()
        dispatcher.close()
        door.close()
        folder.remove()

    each_bytes = UNKNOWN_BYTES if memory_bytes is None else memory_bytes
    options = msgpack.encode({"memory_bytes": each_bytes})
    watcher.calls = calls = Calls(dispatcher, options, close)
    supervisor.start()
    calls.start()
    return calls


def _settings(side: str, max_workers: int, uses_max: int | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "state_dir": None,
        "socket": None,
        "side_socket": side,
        "workers_max": max_workers,
        "guaranteed": [0, 0, 0],
        "burst": True,
        # As many as were asked for, whatever they do: a call may wait for another one.
        "cores_milli": max_workers * 1000,
        "burst_run_ms_min": 0,
        "worker_idle_ms": FOR_EVER,
        "worker_age_max_ms": FOR_EVER,
        "worker_growth_max_bytes": FOR_EVER,
        "worker_uses_max": FOR_EVER if uses_max is None else uses_max,
        "queued_max": QUEUED_MAX,
    }
    return settings
