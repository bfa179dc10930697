"""The server's end of the hooks process: starts it, asks it for tries, hears how they ended.

One thread uses it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

TRY_S: Final = 10.0
"""Of a try, in all."""
GRACE_S: Final = 5.0
"""A process that has not answered so long after that hangs, and is killed."""
IDLE_S: Final = 60.0
"""Without a try for so long, the process is ended: it takes 20 MB."""
READ_BYTES: Final = 65_536

_log = logging.getLogger(__name__)

Ended = tuple[str, bool, str, float]
"""A try that has ended: its token, whether it was answered, what was said, and its seconds."""


class Link:
    """The hooks process, which is started with the first try and after its death.

    Args:
        directory: where it runs.
        try_s: time of a try.
    """

    def __init__(self, directory: Path, try_s: float = TRY_S) -> None:
        self._directory = directory
        self._try_s = try_s
        self._process: subprocess.Popen[bytes] | None = None
        self._until: dict[str, float] = {}
        """When each try must have been answered."""
        self._idle_at = 0.0
        self._read = b""

    def ask(self, token: str, **asked: Any) -> str | None:
        """Ask for a try; why it could not be asked for, or None."""
        try:
            process = self._process or self._start()
            assert process.stdin is not None
            asked["body"] = base64.b64encode(asked["body"]).decode()
            line = json.dumps({"token": token, "seconds": self._try_s, **asked}).encode() + b"\n"
            if os.write(process.stdin.fileno(), line) < len(line):
                raise BlockingIOError("it does not read")
        except OSError as error:
            # A line may be there in part: the process is given up, with what it is at.
            self._until = dict.fromkeys(self._until, 0.0)
            if not self._until:
                self.close()
            return f"the hooks process cannot be asked: {error}"
        self._until[token] = time.monotonic() + self._try_s + GRACE_S
        return None

    def fileno(self) -> int | None:
        """Readable when tries have ended; None: there is no process."""
        if self._process is None or self._process.stdout is None:
            return None
        return self._process.stdout.fileno()

    def deadline(self) -> float | None:
        """When `ended` is to be called at the latest, by the monotonic clock."""
        if self._process is None:
            return None
        return min(self._until.values(), default=self._idle_at)

    def ended(self) -> Iterator[Ended]:
        """The tries that have ended, also by the death of the process."""
        is_open = self._process is None or self._take()
        *lines, self._read = self._read.split(b"\n")
        for line in lines:
            told = json.loads(line)
            self._until.pop(told["token"], None)
            self._idle_at = time.monotonic() + IDLE_S
            yield told["token"], told["is_answered"], told["said"], told["seconds"]
        now = time.monotonic()
        if not is_open:
            yield from self._lose("the hooks process died")
        elif any(until <= now for until in self._until.values()):
            yield from self._lose("the hooks process hangs")
        elif self._process is not None and not self._until and now >= self._idle_at:
            self.close()

    def close(self) -> None:
        """Kill the process with the commands that it runs. Idempotent."""
        process, self._process, self._read = self._process, None, b""
        self._until.clear()
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        # The end of its input has it kill its commands; it is killed where it does not.
        process.stdin.close()
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "forebay.executor.server.hooks.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=self._directory,
            start_new_session=True,  # Ctrl-C at a terminal is for the server
        )
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        self._process = process
        self._idle_at = time.monotonic() + IDLE_S
        return process

    def _take(self) -> bool:
        """Read what it said; False: it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._process.stdout.fileno(), READ_BYTES):
                self._read += data
            return False
        return True

    def _lose(self, why: str) -> Iterator[Ended]:
        """Give the process up; its tries have failed."""
        lost = list(self._until)
        _log.warning("%s with %d tries, and is started again", why, len(lost))
        self.close()
        for token in lost:
            yield token, False, why, 0.0
