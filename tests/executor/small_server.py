"""A server of requests in a process of its own, for tests of clients."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from forebay.executor import Client

ROOT = Path(__file__).parents[2]


class SmallServer:
    """`request_server` as a process; killed and started again at will."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.path = directory / "s"
        self.url = f"unix://{self.path}"
        self._state = directory / "state.json"
        self.process: subprocess.Popen[bytes] | None = None
        self.start(**environment)

    def start(self, **environment: str) -> None:
        """Start it, and return when it listens."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.executor.request_server", self.path, self._state],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def wait_gone(self) -> None:
        """It has ended by itself."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.wait(20)
        self.process.stdout.close()

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.wait_gone()

    def release(self) -> None:
        """End what holds."""
        with Client(self.url, timeout=20.0) as client:
            client.ask("release")

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It does nothing meanwhile: SIGSTOP, and SIGCONT at the end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)
