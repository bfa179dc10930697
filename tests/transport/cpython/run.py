"""Run CPython's own tests on our event loop and our selector.

A program of its own, since it changes what `asyncio` and `selectors` make, for the whole process:

    python -m tests.transport.cpython.run test.test_asyncio.test_tasks test.test_selectors
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import unittest
from collections.abc import Iterator
from typing import Any

from forebay.transport._event_loop import EventLoop
from forebay.transport._selector import Selector
from tests.transport.cpython.skips import reason_to_skip

STOCK: Any = asyncio.SelectorEventLoop
OTHERS = (selectors.PollSelector, selectors.SelectSelector)
BASE: Any = EventLoop


class TestedLoop(BASE):
    """Ours, constructed as CPython's tests construct loops."""

    def __init__(self, selector: selectors.BaseSelector | None = None):
        if isinstance(selector, OTHERS):
            STOCK.__init__(self, selector)  # with a selector of another kind
            return
        if selector is not None:
            selector.close()
        super().__init__()


class TestedSelector(Selector):
    """Ours, constructed without arguments."""

    def __new__(cls) -> TestedSelector:
        return super().__new__(cls, cls._fail)

    def __init__(self) -> None:
        super().__init__(self._fail)

    @staticmethod
    def _fail(error: BaseException, callback: object) -> None:
        raise error


def install() -> None:
    """Have everything that makes a loop or a selector make ours."""
    unix: Any = asyncio.unix_events
    unix._UnixDefaultEventLoopPolicy._loop_factory = TestedLoop
    for module in (asyncio, unix):
        for name in ("SelectorEventLoop", "EventLoop"):  # the second one since 3.13
            if hasattr(module, name):
                setattr(module, name, TestedLoop)
    for name in ("EpollSelector", "DefaultSelector"):
        setattr(selectors, name, TestedSelector)
    loop = asyncio.new_event_loop()
    loop.close()
    if type(loop) is not TestedLoop:
        raise SystemExit(f"asyncio.new_event_loop() makes a {type(loop)}; see install()")


def tests_of(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Every test of a suite."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def suite_of(modules: list[str]) -> unittest.TestSuite:
    """The tests of these modules, those that are skipped left out."""
    loaded = unittest.defaultTestLoader.loadTestsFromNames(modules)
    kept = []
    for test in tests_of(loaded):
        reason = reason_to_skip(test.id())
        if reason is None:
            kept.append(test)
        else:
            sys.stderr.write(f"skipped {test.id()}: {reason}\n")
    return unittest.TestSuite(kept)


def main() -> int:
    """Run what the command line names."""
    install()
    result = unittest.TextTestRunner(verbosity=0).run(suite_of(sys.argv[1:]))
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
