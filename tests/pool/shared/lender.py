"""A lender in a process of its own, and programs that borrow from it, for the tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.pool.shared import shared_program

READY_S = 20.0
END_S = 10.0


class Lending:
    """`forebay serve` as a process; ended with the block, whatever state it is in."""

    def __init__(
        self,
        path: Path,
        *options: str,
        within: Callable[[list[str]], list[str]] = list,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`settings` are those of a pool, which it gets as variables."""
        command = [sys.executable, "-m", "forebay.cli", "serve", "--path", str(path), "--json"]
        self.process = subprocess.Popen(
            within([*command, *options]),
            env=os.environ
            | {f"FOREBAY_POOL_{key.upper()}": _text(it) for key, it in (settings or {}).items()},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.told: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.path = path
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self._inner = int(children.read_text().split()[0]) if within is not list else 0

    @property
    def pid(self) -> int:
        """That of the lender itself, where another program runs it."""
        return self._inner or self.process.pid

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Stop it, and wait until it is stopped."""
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def end(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        self.send(number)
        return self.process.wait(END_S)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def next_free(self) -> int:
        """The number that its next descriptor would have."""
        used = set(map(int, os.listdir(f"/proc/{self.pid}/fd")))
        return min(set(range(len(used) + 1)) - used)

    def processes(self) -> set[int]:
        """The processes that it has a pidfd of."""
        return {int(line.split()[1]) for line in self._infos() if line.startswith("Pid:")}

    def watched(self) -> int:
        """How many descriptors its selectors watch."""
        return sum(line.startswith("tfd:") for line in self._infos())

    def _infos(self) -> list[str]:
        """The lines that the kernel tells of its descriptors."""
        lines: list[str] = []
        for info in Path(f"/proc/{self.pid}/fdinfo").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                lines += info.read_text().splitlines()
        return lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            try:
                self.process.wait(END_S)
            finally:
                self.process.kill()
                self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _text(setting: object) -> str:
    return f"{setting}s" if isinstance(setting, float) else str(setting)


class Program:
    """A program that borrows: `shared_program.py WAY`; it tells what it did as lines of JSON."""

    def __init__(self, path: Path, *way: object) -> None:
        command = [sys.executable, shared_program.__file__, str(path), *map(str, way)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def told(self) -> Any:
        """The next thing that it tells."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait(END_S)}"
        return json.loads(line)

    def go_on(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
