"""An asyncio event loop that keeps the GIL while it has something to do.

A loop that releases the GIL to ask whether a socket is ready gets it back after a switch interval
(5 ms) each time while another thread computes; this one asks first.
The design note is `docs/concepts/transport/event_loop.md`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from forebay.transport._selector import Selector

__all__ = ["EventLoop", "new_event_loop"]


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


def new_event_loop(*, spin_us: int | None = None) -> EventLoop:
    """Make an event loop that resists threads which hold the GIL.

    Use it as `asyncio.Runner(loop_factory=forebay.transport.new_event_loop)`; with an argument,
    wrap it in `functools.partial`. Everything else is asyncio's: `asyncio.SelectorEventLoop`.

    Args:
        spin_us: microseconds, 0 to 500, that the loop polls for events with the GIL held before it
            sleeps, always; it costs a core that much time whenever the loop runs out of work.
            By default it polls for at most 60, and rarely where that finds nothing.

    Raises:
        ConfigError: `spin_us` is above its limit.
        OSError: no descriptors left; a loop takes three.

    Affinity: of a loop: one thread, and the process that made it.
    """
    return EventLoop(spin_us)
