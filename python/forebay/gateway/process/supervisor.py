"""The process of a gateway as its server sees it: started, watched, started again, ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from forebay._package import PATH_ENTRY
from forebay.errors import ConfigError

if TYPE_CHECKING:
    import socket

    from forebay.gateway.process.settings import Settings

__all__ = ["GatewayProcess", "check_installed"]

PAUSE_S: Final = 0.1
PAUSE_S_MAX: Final = 10.0
"""Before it is started again; it doubles, until one has run for `WELL_S`."""

WELL_S: Final = 1.0
"""A start takes a third of it; one that ends again at once has a reason that stays."""

END_S: Final = 5.0
"""From SIGTERM to SIGKILL: answers under way, which wait for nothing, have that long."""

PROGRAM: Final = "forebay.gateway.process.program"
"""What the process runs."""

NEEDED: Final = ("uvicorn", "httptools", "uvloop")


def check_installed() -> None:
    """Look for the packages that a gateway needs, without loading them.

    Raises:
        ConfigError: one is missing; the message says what to type.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"serving HTTP needs {', '.join(missing)}; type: pip install 'forebay[server]'"
        )


class GatewayProcess:
    """Keeps a gateway running, from `start` to `close`.

    Args:
        settings: of the gateway.
        listener: its listening socket, which stays the caller's.
        started: called with the process of each gateway before it connects to the server, and with
            None when it is about to be waited for: its number is free then.
        warn: called with a text for people.

    Both are called in a thread of its own. `start` and `close`: any thread, each once.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        *,
        started: Callable[[int | None], None],
        warn: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._started = started
        self._warn = warn
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="forebay-gateway", daemon=True)

    def start(self) -> None:
        """Start the gateway; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """End the gateway, and wait for its end. Idempotent."""
        self._closing.set()
        if not self._thread.is_alive():
            return
        with self._lock:
            process = self._process
        if process is not None:
            process.terminate()
            self._thread.join(END_S)
            process.kill()
        self._thread.join()

    def _run(self) -> None:
        pause = PAUSE_S
        while not self._closing.is_set():
            began = time.monotonic()
            try:
                told = self._run_once()
            except OSError as error:
                told = f"cannot be started: {error.strerror}"
            if self._closing.is_set():
                return
            if time.monotonic() - began >= WELL_S:
                pause = PAUSE_S
            self._warn(f"the gateway {told}; it is started again in {pause:g} s")
            self._closing.wait(pause)
            pause = min(PAUSE_S_MAX, 2 * pause)

    def _run_once(self) -> str:
        """Run one gateway until it ends; how it ended."""
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                with self._lock:
                    if self._closing.is_set():
                        return ""
                    process = self._process = self._spawn(read)
            finally:
                os.close(read)
            with process:
                self._started(process.pid)
                with contextlib.suppress(BrokenPipeError):  # it has ended already
                    os.write(write, b"+")  # it may connect now
                # It stays a zombie until the server knows: nobody gets its number meanwhile.
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                self._started(None)
                code = process.wait()
        finally:
            os.close(write)
        with self._lock:
            self._process = None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"(process {process.pid}) {how}"

    def _spawn(self, lifeline: int) -> subprocess.Popen[bytes]:
        from msgspec import json

        program = (
            f"import sys; sys.path.insert(0, {PATH_ENTRY!r}); from {PROGRAM} import main; main()"
        )
        descriptors = f"{self._listener.fileno()},{lifeline}"
        told = json.encode(self._settings).decode()
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program, descriptors, told],
            stdin=subprocess.DEVNULL,
            pass_fds=(self._listener.fileno(), lifeline),
            process_group=0,  # Ctrl-C is the server's, which ends it when its own end has come
        )
