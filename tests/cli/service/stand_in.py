"""A stand-in for systemd: starts a unit with its sockets, and hears what that tells it.

Sources: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3), systemd.service(5).
"""

from __future__ import annotations

import array
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

ROOT = Path(__file__).resolve().parents[3]

LAUNCH = """\
import os, sys
count, *argv = sys.argv[1:]
for at in range(int(count)):
    os.dup2(int(argv[at]), 100 + at)
for at in range(int(count)):
    os.dup2(100 + at, 3 + at)
    os.close(100 + at)
os.environ["LISTEN_PID"] = os.environ["WATCHDOG_PID"] = str(os.getpid())
if not int(count):
    del os.environ["LISTEN_PID"]
os.execv(sys.executable, [sys.executable, "-m", "forebay.cli", *argv[int(count):]])
"""
"""What the manager does between fork and exec: descriptors from 3 on, and whose they are."""

CREDENTIALS = struct.Struct("3i")


class Message(NamedTuple):
    """What a service has told: its fields, who sent it, and when."""

    fields: dict[str, str]
    pid: int
    at: float


class Unit:
    """A service of `Type=notify`.

    Args:
        home: where its state and sockets are.
        arguments: of `forebay`.
        sockets: that it is passed, by their names.
        watchdog_s: `WatchdogSec=`.
        is_abstract: whether the manager's socket has an abstract name.
    """

    def __init__(
        self,
        home: Path,
        *arguments: str,
        sockets: Sequence[tuple[str, socket.socket]] = (),
        watchdog_s: float | None = None,
        is_abstract: bool = False,
    ) -> None:
        self.arguments = arguments
        self.sockets = sockets
        self.runtime = tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp")
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        path = f"{self.runtime.name}/notify"
        self._manager.bind(f"\0{path}" if is_abstract else path)
        self.environment = {
            **os.environ,
            "NOTIFY_SOCKET": f"@{path}" if is_abstract else path,
            "XDG_RUNTIME_DIR": self.runtime.name,
            "FOREBAY_STATE_DIR": str(home / "state"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)]),
        }
        if sockets:
            self.environment["LISTEN_FDS"] = str(len(sockets))
            self.environment["LISTEN_FDNAMES"] = ":".join(name for name, _ in sockets)
        if watchdog_s is not None:
            self.environment["WATCHDOG_USEC"] = str(int(watchdog_s * 1e6))
        self.process: subprocess.Popen[str] | None = None
        self.told: list[Message] = []
        """All that was heard, in its order."""

    @property
    def pid(self) -> int:
        """Of the main process."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> Self:
        """Start it; does not wait until it is ready."""
        descriptors = [one.fileno() for _, one in self.sockets]
        launch = [sys.executable, "-c", LAUNCH, str(len(descriptors)), *map(str, descriptors)]
        self.process = subprocess.Popen(
            [*launch, *self.arguments],
            env=self.environment,
            pass_fds=descriptors,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self

    def next(self, timeout: float) -> Message | None:
        """The next message; None: none came in time."""
        self._manager.settimeout(timeout)
        try:
            text, ancillary, _, _ = self._manager.recvmsg(65536, socket.CMSG_SPACE(12))
        except TimeoutError:
            return None
        (pid, _, _) = CREDENTIALS.unpack(array.array("i", ancillary[0][2]).tobytes())
        pairs = (line.partition("=") for line in text.decode().splitlines())
        message = Message({name: value for name, _, value in pairs}, pid, time.monotonic())
        self.told.append(message)
        return message

    def hear(self, field: str, holds: str = "", timeout: float = 40.0) -> Mapping[str, str]:
        """The fields of the next message with this field, whose value holds this text."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            message = self.next(left)
            if message is not None and field in message.fields and holds in message.fields[field]:
                return message.fields
        raise AssertionError(f"no {field} with {holds!r}: {self.told}, {self.why()}")

    def why(self) -> str:
        """What it printed, if it has ended."""
        assert self.process is not None
        return "it runs" if self.process.poll() is None else str(self.process.communicate())

    def listen(self, seconds: float) -> list[Message]:
        """What it tells within a time."""
        deadline, heard = time.monotonic() + seconds, []
        while (left := deadline - time.monotonic()) > 0:
            message = self.next(left)
            if message is not None:
                heard.append(message)
        return heard

    def signal(self, number: int) -> None:
        """`ExecReload=kill -HUP $MAINPID`, or its end."""
        os.kill(self.pid, number)

    def command(self, *words: str, is_told: bool = False) -> subprocess.Popen[str]:
        """Start a command of the same user, which is not of the unit.

        Args:
            words: of the command.
            is_told: it is, and has the manager's socket.
        """
        hidden = ("LISTEN_", "WATCHDOG_", *(() if is_told else ("NOTIFY_",)))
        environment = {
            name: value for name, value in self.environment.items() if not name.startswith(hidden)
        }
        command = [sys.executable, "-m", "forebay.cli", *words]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def stopped(self, stop_s: float) -> int:
        """Kill it at `TimeoutStopSec=`, or when that is over which it asks for; its exit code."""
        asked = self.hear("STOPPING", "1").get("EXTEND_TIMEOUT_USEC", "0")
        assert self.process is not None
        try:
            self.process.communicate(timeout=max(stop_s, int(asked) / 1e6))
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
        return self.process.wait(40)

    def ended(self) -> tuple[int, str]:
        """Wait for its end: the exit code, and what it printed on stderr."""
        assert self.process is not None
        _, errors = self.process.communicate(timeout=40)
        return self.process.returncode, errors

    def close(self) -> None:
        """End it, and forget its sockets."""
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGTERM)
            self.ended()
        self._manager.close()
        self.runtime.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
