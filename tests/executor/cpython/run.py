"""Run CPython's own tests of process pools on our executor.

A program of its own, since it changes what `concurrent.futures` makes, for the whole process:

    python -m tests.executor.cpython.run
"""

from __future__ import annotations

import concurrent.futures
import fnmatch
import importlib
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import test

import forebay
from tests.executor.cpython.skips import SKIPS

VENDORED = Path(__file__).parents[2] / "vendored/cpython"
MODULE = "test.test_concurrent_futures"

# Also where a template imports this, so that workers find the tests' functions.
test.__path__.insert(0, str(VENDORED))


class TestedExecutor(forebay.Executor):
    """Ours, constructed as the standard library's, with what its tests look at inside."""

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
    ) -> None:
        super().__init__(
            max_workers,
            initializer=initializer,
            initargs=initargs,
            max_tasks_per_child=max_tasks_per_child,
        )
        self._call_queue = SimpleNamespace(join_thread=lambda: None)

    @property
    def _executor_manager_thread(self) -> Any:
        return self._calls and self._calls._collector

    @property
    def _processes(self) -> dict[int, Any]:
        """The workers; they are gone when the collector is, which the tests join before them."""
        dispatcher = self._calls and self._calls._dispatcher
        if dispatcher is None:
            return {}
        staying = [place for place in dispatcher.workers() if place["state"] != "stopping"]
        return {place["slot"]: SimpleNamespace(join=lambda: None) for place in staying}


def reason_to_skip(name: str) -> str | None:
    """Why a test is left out; None for one that is run."""
    short = name.removeprefix(MODULE)
    for pattern, reason in SKIPS.items():
        if fnmatch.fnmatchcase(short, pattern):
            return reason
    return None


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Every test of a suite."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def main(names: list[str]) -> int:
    """Run the tests whose names contain one of `names`; all without any."""
    concurrent.futures.ProcessPoolExecutor = TestedExecutor
    module = importlib.import_module(MODULE)
    if not str(module.__file__).startswith(str(VENDORED)):
        raise SystemExit(f"{MODULE} is {module.__file__}, not the copy in {VENDORED}")
    kept = []
    for each in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
        reason = reason_to_skip(each.id())
        if reason is not None:
            sys.stderr.write(f"skipped {each.id()}: {reason}\n")
        elif not names or any(name in each.id() for name in names):
            kept.append(each)
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(kept))
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
