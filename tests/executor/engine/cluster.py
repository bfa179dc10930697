"""A Dask cluster of programs that a test kills, stops and starts again, over our own comms."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.executor.serving import ROOT, descendants, until

END_S = 10.0
START_S = 40.0
HOST = "127.0.0.1"
COMMON = ("--host", HOST, "--no-dashboard")

NODE = "FOREBAY_TEST_NODE"
"""The variable by which whatever runs on a node knows its name."""

DIRECTORY = "/tmp/fb-node-"
"""How the directories of nodes begin."""


class Program:
    """One `dask ARGUMENTS`; each time that it is started it is another process.

    Args:
        folder: where it runs, and where what it writes goes.
        name: of the file there.
        arguments: of the command.
        environment: further variables.
    """

    def __init__(
        self, folder: Path, name: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._folder = folder
        self._log = folder / f"{name}.log"
        self.command = [sys.executable, "-m", "dask", *arguments]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)]),
            **(environment or {}),
        }
        # As users have it; else each process compiles whatever it imports.
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the program itself."""
        assert self._process is not None
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def has_written(self, text: str) -> bool:
        """Whether that is in its log."""
        return self._log.exists() and text in self._log.read_text()

    def written(self) -> str:
        """The end of its log."""
        return self._log.read_text()[-2000:] if self._log.exists() else ""

    def kill(self) -> None:
        """SIGKILL."""
        if self.lives:
            assert self._process is not None
            self._process.kill()
            self._process.wait(END_S)

    def end(self) -> None:
        """SIGTERM; what has not ended in time is killed."""
        if not self.lives:
            return
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Node(Program):
    """A `dask worker`, with or without a nanny.

    Args:
        folder: of its log.
        name: of the node.
        scheduler: its address.
        threads: so many workers of applications it may have.
        nanny: whether one starts its worker again.
        environment: further variables.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        scheduler: str,
        *,
        threads: int,
        nanny: bool,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.nanny = nanny
        options = ("--name", name, "--nthreads", str(threads), "--memory-limit", "0")
        nannied = () if nanny else ("--no-nanny",)
        super().__init__(
            folder,
            name,
            *("worker", scheduler, *COMMON, *options, *nannied),
            *("--protocol", scheduler.partition(":")[0]),
            *("--local-directory", str(folder)),
            environment={**(environment or {}), NODE: name},
        )

    @property
    def worker(self) -> int | None:
        """The process that runs tasks, if there is one now."""
        if not self.lives:
            return None
        if not self.nanny:
            return self.pid
        return next((pid for pid in descendants(self.pid) if _is_spawned(pid)), None)

    def kill(self) -> None:
        """SIGKILL the nanny, then its worker."""
        worker = self.worker
        super().kill()
        if worker is not None:
            strike(worker, signal.SIGKILL)

    def directory(self) -> str | None:
        """The directory of ours there, whose lock its worker holds."""
        links = [] if self.worker is None else [link for _, link in opened(self.worker)]
        return next((link for link in links if link.startswith(DIRECTORY)), None)


class Cluster:
    """A scheduler and nodes; the scheduler keeps its port when it is started again.

    Args:
        folder: of their logs.
        environment: further variables of all of them.
        protocol: of their comms.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        protocol: str = "forebay",
    ) -> None:
        self._folder = folder
        self._environment = dict(environment or {})
        with socket.create_server((HOST, 0)) as free:
            port = free.getsockname()[1]
        self.address = f"{protocol}://{HOST}:{port}"
        self.scheduler = Program(
            folder,
            "scheduler",
            *("scheduler", *COMMON, "--port", str(port), "--protocol", protocol),
            environment=self._environment,
        )
        self.nodes: list[Node] = []

    def add(self, name: str, *, threads: int = 2, nanny: bool = False) -> Node:
        """One more node, which is not started yet."""
        node = Node(
            self._folder,
            name,
            self.address,
            threads=threads,
            nanny=nanny,
            environment=self._environment,
        )
        self.nodes.append(node)
        return node

    def start(self) -> Self:
        """Start all of it, and wait until the nodes are known to the scheduler."""
        for program in (self.scheduler, *self.nodes):
            program.start()
        for node in self.nodes:
            until(lambda one=node: one.has_written("Registered to"), START_S, why=node.written)
        return self

    def tasks(self) -> list[str]:
        """Keys of the tasks that the scheduler has."""
        from distributed import Client

        client: Any = Client  # whose methods have no types
        with client(self.address, set_as_default=False, timeout=START_S) as client:
            found: list[str] = client.run_on_scheduler(_tasks)
        return found

    def end(self) -> None:
        """End all of it."""
        for program in (*self.nodes, self.scheduler):
            program.end()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.end()
            raise

    def __exit__(self, *_: object) -> None:
        self.end()


def _tasks(dask_scheduler: Any) -> list[str]:
    return sorted(dask_scheduler.tasks)


def strike(pid: int, number: int) -> bool:
    """Send a signal; whether there was such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def opened(pid: int) -> list[tuple[int, str]]:
    """The descriptors of a process, and what they are; none of one that has ended."""
    found = []
    try:
        entries = os.listdir(f"/proc/{pid}/fd")
    except FileNotFoundError:
        return []
    for entry in entries:
        try:
            found.append((int(entry), os.readlink(f"/proc/{pid}/fd/{entry}")))
        except FileNotFoundError:  # closed since
            continue
    return found


def _is_spawned(pid: int) -> bool:
    """Whether it is a process that multiprocessing has spawned."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
