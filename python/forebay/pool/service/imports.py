"""Which import started a thread, noted while a template imports its application."""

from __future__ import annotations

import importlib
import os
from types import CodeType, TracebackType
from typing import Any

from forebay.pool.service.threads import TASKS

_FROZEN = "<frozen importlib._bootstrap>"
"""Frames of this file are left out of the traceback of an import that failed."""


class Imports:
    """Counts the threads of this process before and after each module is loaded.

    Without /proc it counts none; `extra_threads` reports that later.
    Use `with Imports(application) as imports:` around the imports, then `imports.of(thread)`.
    If this interpreter loads modules in another way than CPython 3.11 to 3.14, no module is named.
    Cost: two system calls for each module.
    """

    __slots__ = ("_application", "_count", "_directory", "_load", "_loading", "_started")

    def __init__(self, application: str) -> None:
        """`application`: the module that is imported, which `of` does not name as the importer."""
        self._application = application
        self._count = 0
        try:
            self._directory = os.open(TASKS, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._directory = -1
        self._loading: list[str] = []
        self._started: dict[int, tuple[str, ...]] = {}
        self._load: Any = None
        self._look()

    def __enter__(self) -> Imports:
        bootstrap: Any = importlib._bootstrap
        self._load = getattr(bootstrap, "_load_unlocked", None)
        if self._load is not None and self._directory >= 0:
            bootstrap._load_unlocked = self._watching()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._directory >= 0:
            os.close(self._directory)
        if self._load is not None:
            importlib._bootstrap._load_unlocked = self._load  # type: ignore[attr-defined]

    def of(self, thread: int) -> str:
        """What started a thread, as the end of a sentence; empty if that is not known."""
        modules = self._started.get(thread, ())
        if not modules:
            return ""
        above = [name for name in modules[:-1] if name != self._application]
        brought = f", which import {above[0]} brought" if above else ""
        return f"by import {modules[-1]}{brought}"

    def _watching(self) -> Any:
        load, look, loading = self._load, self._look, self._loading

        def watched(spec: Any) -> Any:
            look()
            loading.append(spec.name)
            try:
                return load(spec)
            finally:
                look()
                loading.pop()

        code: CodeType = watched.__code__
        watched.__code__ = code.replace(co_filename=_FROZEN)
        return watched

    def _look(self) -> None:
        """Note the module that is being loaded as the origin of new threads."""
        if self._directory < 0:
            return
        count = os.fstat(self._directory).st_nlink  # the number of threads plus 2
        if count == self._count:
            return
        self._count = count
        for task in map(int, os.listdir(TASKS)):
            self._started.setdefault(task, tuple(self._loading))
