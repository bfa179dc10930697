"""Schedulers, workers and programs of Dask as processes, each with our comms or Dask's own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
END_S = 10
"""For an orderly end; a worker that is ended while it starts may hang."""
POLL_S = 0.05


class Nodes:
    """Processes that are ended together; what each writes lies in a file of its name.

    Args:
        folder: where they run.
        python: the interpreter, whose `distributed` it is.
    """

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self._folder = folder
        self._python = python
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *arguments: str) -> None:
        """Run `dask ARGUMENTS`."""
        with (self._folder / f"{name}.log").open("wb") as log:
            self._started.append(
                subprocess.Popen(
                    [self._python, "-m", "dask", *arguments],
                    cwd=self._folder,
                    env=environment(self._python),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def log(self, name: str) -> str:
        """What one has written so far."""
        return (self._folder / f"{name}.log").read_text()

    def wait_for(self, name: str, text: str) -> str:
        """Wait until one has written something; all that it has."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.log(name):
            assert time.monotonic() < deadline, f"{name} does not write {text!r}: {self.log(name)}"
            time.sleep(POLL_S)
        return self.log(name)

    def scheduler(self, *arguments: str) -> str:
        """Start a scheduler on a free port; its address."""
        self.start("scheduler", "scheduler", "--no-dashboard", "--port", "0", *arguments)
        written = self.wait_for("scheduler", "Scheduler at: ")
        return written.partition("Scheduler at: ")[2].split()[0]

    def worker(self, name: str, address: str, *arguments: str) -> None:
        """Start a worker."""
        common = ("--name", name, "--nthreads", "1", "--no-dashboard")
        self.start(name, "worker", address, *common, *arguments)

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end; what it writes."""
        outcome = subprocess.run(
            [self._python, program, *arguments],
            cwd=self._folder,
            env=environment(self._python),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        logs = "".join(self.log(path.stem) for path in self._folder.glob("*.log"))
        assert outcome.returncode == 0, outcome.stderr + logs
        return outcome.stdout

    def end(self) -> None:
        """End them, the last first."""
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def nodes(folder: Path, python: str = sys.executable) -> Iterator[Nodes]:
    """Nodes that end with the block."""
    running = Nodes(folder, python)
    try:
        yield running
    finally:
        running.end()


def environment(python: str) -> dict[str, str]:
    """That of an interpreter which finds this package, and what is installed for it."""
    path = sys.path if python == sys.executable else [str(ROOT / "python"), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
