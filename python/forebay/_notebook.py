"""The notebook whose kernel this program is: its interrupts, and HTML in the output of a cell.

IPython is imported only where the program has imported it itself.

ipykernel 7 handles the interrupt of a cell that awaits by a callback that it gives to its event
loop from a signal handler, which wakes no loop: the system call in which it waits is resumed
(PEP 475), and an interrupt of `await asyncio.sleep(30)` took effect after 29.7 s. So the loop also
reads the descriptor into which the interpreter writes at each signal.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    import socket

__all__ = ["Output", "is_notebook", "wake_on_interrupt"]

_SIGNALS_READ = 4096
"""Bytes that are read at once; one is written for each signal."""

_woken: tuple[asyncio.AbstractEventLoop, socket.socket, socket.socket] | None = None
"""The loop that signals wake, the socket that it reads, and the interpreter's end of that."""


def is_notebook() -> bool:
    """Whether cells of a notebook run in this process."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def wake_on_interrupt(loop: asyncio.AbstractEventLoop) -> None:
    """Have a signal wake the running loop of a notebook, from now on until the loop is closed.

    Elsewhere it does nothing; nor where somebody else has the descriptor for signals, such as a
    loop with signal handlers, which wakes by itself. Cost: two descriptors of the process.
    """
    global _woken
    if not is_notebook() or (_woken is not None and not _woken[0].is_closed()):
        return
    import signal
    import socket
    import threading

    if threading.current_thread() is not threading.main_thread():
        return  # it gets no signals
    _stop_waking()  # a loop that was closed
    theirs = signal.set_wakeup_fd(-1)
    if theirs != -1:
        signal.set_wakeup_fd(theirs)
        return
    ours, written = socket.socketpair()
    ours.setblocking(False)
    written.setblocking(False)
    loop.add_reader(ours, ours.recv, _SIGNALS_READ)
    signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
    _woken = loop, ours, written


def _stop_waking() -> None:
    """Let signals wake no loop any more."""
    global _woken
    if _woken is None:
        return
    import signal

    loop, ours, written = _woken
    _woken = None
    theirs = signal.set_wakeup_fd(-1)
    if theirs != written.fileno():
        signal.set_wakeup_fd(theirs)  # somebody else's by now
    if not loop.is_closed():
        loop.remove_reader(ours)
    ours.close()
    written.close()


class Output:
    """A piece of the output of the cell that runs, which is replaced in place.

    Args:
        markup: the HTML that it begins with.
        text: the same for a front end without HTML.
    """

    __slots__ = ("_handle",)

    def __init__(self, markup: str, text: str) -> None:
        shown = importlib.import_module("IPython.display")  # loaded by every kernel
        self._handle: Any = shown.display(_bundle(markup, text), raw=True, display_id=True)

    def replace(self, markup: str, text: str) -> None:
        """Show this instead, also in a notebook that was saved meanwhile."""
        self._handle.update(_bundle(markup, text), raw=True)


def _bundle(markup: str, text: str) -> dict[str, str]:
    return {"text/html": markup, "text/plain": text}
