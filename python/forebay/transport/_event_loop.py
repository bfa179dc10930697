"""An asyncio event loop that keeps the GIL while it has something to do.

Who polls decides whether a loop resists a thread that computes. A loop that lets go of the GIL to
ask whether a socket is ready gets it back after a switch interval (5 ms), each time; this one asks
first. The design note is `docs/concepts/transport/event_loop.md`.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.base_events import BaseEventLoop
from asyncio.format_helpers import _format_callback_source
from typing import Any

from forebay._core import Turns
from forebay.transport._selector import Selector

__all__ = ["EventLoop", "TurningLoop", "knows_asyncio", "new_event_loop"]

#: Those whose `_run_once`, `call_soon` and `Handle` were compared with ours, and whose tests pass.
_KNOWN_VERSIONS = ((3, 11), (3, 12), (3, 13))
_HANDLE_SLOTS = {
    "__weakref__",
    "_args",
    "_callback",
    "_cancelled",
    "_context",
    "_loop",
    "_repr",
    "_source_traceback",
}


class EventLoop(asyncio.SelectorEventLoop):
    """asyncio's own selector loop, on a selector in Rust.

    Attributes:
        forebay_selector: the selector with the direct path. `attach(fd, events, callback)` has
            `callback(events)` called from inside the loop's wait, in the loop's thread and in the
            context in which the loop runs; events: 1 readable, 2 writable, both at errors and
            hang-ups as far as asked for. `change(fd, events)` asks for others (0: none for now),
            `detach(fd)` ends it, at once, and says whether there was something to end. The owner
            of `fd` detaches before it closes.

    Errors: what a callback raises goes to the loop's exception handler, and the callback stays
    attached. `attach` raises BusyError where the descriptor is watched already, `change` KeyError
    where it is not attached, both ClosedError after the loop was closed and OSError where the
    kernel refuses.
    """

    forebay_selector: Selector
    _closed = True  # until asyncio opens it: one whose arguments were refused is not left open

    def __init__(self, spin_us: int | None = None):
        self.forebay_selector = Selector(self._report, spin_us)
        try:
            super().__init__(self.forebay_selector)
        except BaseException:
            self.forebay_selector.close()
            raise

    def _report(self, error: BaseException, callback: Any) -> None:
        message = f"Exception in direct callback {callback!r}"
        self.call_exception_handler({"message": message, "exception": error})


class TurningLoop(Turns, EventLoop):
    """The same loop, its turns made without asyncio's Python code: for versions known to us."""

    def _report_handle(self, handle: Any, error: BaseException) -> None:
        """Tell of an exception as `Handle._run` does."""
        source = _format_callback_source(handle._callback, handle._args)
        message = f"Exception in callback {source}"
        context = {"message": message, "exception": error, "handle": handle}
        self.call_exception_handler(context)


def knows_asyncio() -> bool:
    """Whether asyncio is one that `TurningLoop` was written for, and nobody has changed it."""
    stock: Any = asyncio.SelectorEventLoop
    used = (
        (stock._run_once, BaseEventLoop.stop),
        (stock.call_soon, BaseEventLoop.stop),
        (asyncio.Handle.__init__, asyncio.Handle.cancel),
        (asyncio.Handle._run, asyncio.Handle.cancel),
        (asyncio.TimerHandle.__init__, asyncio.TimerHandle.cancel),
    )
    return (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in _KNOWN_VERSIONS
        and set(asyncio.Handle.__slots__) == _HANDLE_SLOTS
        and all(_come_from_one_file(*pair) for pair in used)
    )


def _come_from_one_file(one: Any, other: Any) -> bool:
    """Whether a method is still the one beside another, and not put there from outside."""
    names = {getattr(getattr(it, "__code__", None), "co_filename", None) for it in (one, other)}
    return len(names) == 1 and None not in names


def new_event_loop(*, spin_us: int | None = None) -> EventLoop:
    """Make an event loop that resists threads which hold the GIL.

    Use it as `asyncio.Runner(loop_factory=forebay.transport.new_event_loop)`; with an argument,
    wrap it in `functools.partial`. Everything else is asyncio's: `asyncio.SelectorEventLoop`.
    Where asyncio is one that we know, `call_soon` and the turns of the loop are made in Rust too.

    Args:
        spin_us: microseconds, 0 to 500, that the loop looks for events with the GIL held before it
            sleeps, always; it costs a core that much time whenever the loop runs out of work.
            By default it looks for at most 60, and rarely where that finds nothing.

    Raises:
        ConfigError: `spin_us` is above its limit.
        OSError: no descriptors left; a loop takes three.

    Affinity: of a loop: one thread, and the process that made it.
    """
    return (TurningLoop if knows_asyncio() else EventLoop)(spin_us)
