"""What a service does before it ends in order: its method `close`, and its exit handlers."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.service.worker import Target

_callbacks: Callable[[], int] = getattr(atexit, "_ncallbacks", lambda: sys.maxsize)
"""The number of exit handlers; a large one if this interpreter cannot report it."""


class Farewell:
    """Tells the keeper, once, that this service has work to do before it ends, and does that work.

    The keeper kills a service that has reported nothing, which costs nothing.
    A service runs no handler that was registered before it was forked. A handler of the import may
    remove something that the template and its other services still use; a handler of a service that
    was copied belongs to that service.
    """

    __slots__ = ("_begun", "_keeper", "_own", "_seen", "_target", "wanted")

    def __init__(self, keeper: _core.KeeperLink, target: Target) -> None:
        self._keeper = keeper
        self._target = target
        self._begun = False
        self._own = 0
        self._seen = -1
        self.wanted = False

    def begin(self) -> None:
        """In the service, before its first call: drop the handlers that it inherited by fork."""
        if self._begun:
            return
        self._begun = True
        atexit._clear()
        _leave_finalizers()
        _keep_library_handlers()
        self._own = _callbacks() - _of_pool()

    def look(self) -> None:
        """After each call: note whether there is work to do at the end. Cost: 0.1 us."""
        if _callbacks() != self._seen:
            self._seen = _callbacks()
            if not self.wanted and self._has_work():
                self.wanted = True
                self._keeper.report_exit_hooks()

    def run(self) -> None:
        """Do the work; an error is written to stderr, and the rest is done."""
        service, self._target._service = self._target._service, None
        if _has_close(service):
            _attempt(service.close)
        del service
        gc.collect()  # for `__del__` of objects that only the service referred to
        _attempt(atexit._run_exitfuncs)
        for stream in (sys.stdout, sys.stderr):
            _attempt(stream.flush)

    def _has_work(self) -> bool:
        service = self._target._service
        registered = _callbacks() - _of_pool() > self._own
        return registered or _has_close(service) or hasattr(type(service), "__del__")


def _leave_finalizers() -> None:
    """Detach the finalizers of `weakref.finalize` that were made before the fork.

    For example those of `tempfile.TemporaryDirectory`. Those with `atexit = False` stay: they only
    free memory of this process.
    """
    finalize = weakref.finalize
    for finalizer in list(finalize._registry):  # type: ignore[attr-defined]
        if finalizer.atexit:
            finalizer.detach()
    finalize._registered_with_atexit = False  # type: ignore[attr-defined]


def _keep_library_handlers() -> None:
    """Register again the handlers of libraries that act on their own process only.

    They end what this process has made with them, and nothing that it inherited by the fork.
    """
    if "logging" in sys.modules:
        atexit.register(sys.modules["logging"].shutdown)
    if "multiprocessing.util" in sys.modules:
        sys.modules["multiprocessing.process"]._children.clear()  # its handler ends them
        atexit.register(sys.modules["multiprocessing.util"]._exit_function)
    if _of_pool():
        atexit.register(sys.modules["forebay.pool.lend.pool"].close_all)


def _of_pool() -> int:
    """The number of handlers of the pool module (0 or 1), which are no reason to report work.

    They end the pools of this process, which end with it in any case.
    """
    return int("forebay.pool.lend.pool" in sys.modules)


def _has_close(service: Any) -> bool:
    """Whether a service has a `close` for its end; that of a factory's object may mean another."""
    module = sys.modules.get("forebay.pool.service.service")
    own = module is not None and isinstance(service, module.Service)
    return own and callable(getattr(service, "close", None))


def _attempt(work: Callable[[], Any]) -> None:
    try:
        work()
    except BaseException:  # SystemExit too: the rest is still to be done
        import traceback

        os.write(2, f"at the end of this service:\n{traceback.format_exc()}".encode())
