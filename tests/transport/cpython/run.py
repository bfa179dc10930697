"""Run modules of CPython's own `test.test_asyncio` on our event loop.

A program of its own, since it changes what `asyncio` makes, for the whole process:

    python -m tests.transport.cpython.run test_tasks test_events
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import unittest
from collections.abc import Iterator

from forebay.transport._event_loop import EventLoop, TurningLoop, knows_asyncio
from tests.transport.cpython.skips import SKIPS


STOCK = asyncio.SelectorEventLoop
Base = TurningLoop if knows_asyncio() else EventLoop


class TestedLoop(Base):
    """Ours, constructed as CPython's tests construct loops."""

    def __init__(self, selector: selectors.BaseSelector | None = None):
        if isinstance(selector, selectors.PollSelector | selectors.SelectSelector):
            STOCK.__init__(self, selector)
            return
        if selector is not None:
            selector.close()
        super().__init__()


def install() -> None:
    """Have everything that makes a loop make ours."""
    policy = asyncio.unix_events._UnixDefaultEventLoopPolicy
    policy._loop_factory = TestedLoop
    asyncio.SelectorEventLoop = asyncio.unix_events.SelectorEventLoop = TestedLoop
    if hasattr(asyncio, "EventLoop"):  # since 3.13
        asyncio.EventLoop = asyncio.unix_events.EventLoop = TestedLoop
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
    names = [f"test.test_asyncio.{module}" for module in modules]
    loaded = unittest.defaultTestLoader.loadTestsFromNames(names)
    kept = []
    for test in tests_of(loaded):
        name = test.id().removeprefix("test.test_asyncio.")
        if name in SKIPS:
            sys.stderr.write(f"skipped {name}: {SKIPS[name]}\n")
        else:
            kept.append(test)
    return unittest.TestSuite(kept)


def main() -> int:
    """Run what the command line names."""
    install()
    result = unittest.TextTestRunner(verbosity=0).run(suite_of(sys.argv[1:]))
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
