"""A shell in a fresh environment, and the record of what it shows."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.cgroup import Cgroup
from tools.scenes.fresh import Fresh

WAIT_S = 120.0


class Scene:
    """Plays lines of a shell, records them by part, and compares what it sees.

    Args:
        fresh: where the commands are, and the applications.
    """

    def __init__(self, fresh: Fresh) -> None:
        self.fresh = fresh
        self.home = fresh.home
        self.parts: dict[str, list[str]] = {}
        self.failures: list[str] = []
        self._part: list[str] = []
        state, temporary = self.home / "state", self.home / "tmp"
        self.folders = (state, temporary, self.home / "forebay")
        """What servers write."""
        temporary.mkdir()
        os.environ.update(
            FOREBAY_STATE_DIR=str(state),
            XDG_RUNTIME_DIR=str(self.home),
            PATH=os.pathsep.join([str(fresh.programs), os.environ["PATH"]]),
            TMPDIR=str(temporary),
        )
        os.environ.pop("PYTHONPATH", None)  # the commands are those of the fresh environment alone

    def part(self, name: str) -> None:
        """What follows belongs to this part of the guide."""
        self._part = self.parts[name] = []

    def shell(self, command: str, *, shown: str | None = None) -> str:
        """Run a line, and show it with what it wrote; returns its output."""
        self.say(f"$ {shown or command}")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        text = self.masked(done.stdout.decode()).rstrip()
        self.say(text)
        if done.returncode:
            self.say(f"[{done.returncode}]")
        return text

    def say(self, text: str) -> None:
        """Show some lines."""
        if text:
            print(text, flush=True)
            self._part.append(text)

    def expect(self, holds: bool, what: str) -> None:
        """Compare: what does not hold fails the scene, which is played to its end."""
        if not holds:
            print(f"!! not so: {what}", file=sys.stderr, flush=True)
            self.failures.append(what)

    def masked(self, text: str) -> str:
        """The text without the place in which it was recorded."""
        return text.replace(str(self.home), "$HOME")

    def until_shown(self, command: Sequence[str], awaited: bytes) -> float:
        """Seconds until a command shows something on a terminal; it is then left to end."""
        ours, theirs = pty.openpty()
        started = time.monotonic()
        with subprocess.Popen(
            command, cwd=self.home, stdin=theirs, stdout=theirs, stderr=theirs
        ) as process:
            os.close(theirs)
            shown, took = b"", WAIT_S
            with contextlib.suppress(OSError):  # what a terminal says at its end
                while piece := os.read(ours, 4096):
                    shown += piece
                    if awaited in shown and took == WAIT_S:
                        took = time.monotonic() - started
            process.wait(WAIT_S)
        os.close(ours)
        return took

    @contextlib.contextmanager
    def served(self, application: str, *options: str, group: Cgroup | None = None) -> Iterator[int]:
        """Serve an application in the foreground of another shell; its process id."""
        self.say(f"$ {' '.join(('forebay serve', application, *options))} &")
        server = subprocess.Popen(
            [self.fresh.programs / "forebay", "serve", application, *options],
            cwd=self.home,
            stdout=subprocess.PIPE,
            preexec_fn=None if group is None else group.enter,
        )
        try:
            assert server.stdout is not None
            self.say(self.masked(server.stdout.readline().decode().strip()))
            yield server.pid
        finally:
            server.terminate()
            server.wait(WAIT_S)
