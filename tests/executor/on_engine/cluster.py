"""A cluster for a run of tests: a scheduler and two nodes, which are no children of that run.

The guard of each test takes new processes below the run for leaks, and a node starts and ends
workers of servers all the time. So the program that a run starts starts the cluster, says where it
is, and ends. The cluster lives until the standard input that both were given ends.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, cast

ROOT = Path(__file__).resolve().parents[3]

NODES: Final = 2

THREADS: Final = 32
"""Of each node: so many workers of applications, of all servers of a run."""

PROTOCOL: Final = "forebay+unix"

START_S: Final = 60.0
END_S: Final = 30.0


class TestCluster:
    """A cluster of a run, from here until `close`.

    Attributes:
        address: of its scheduler.
        log: what its processes have written.
    """

    __test__ = False

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fb-cluster-")
        self.log = Path(self._directory.name, "log")
        stdin, self._lifeline = os.pipe()
        try:
            told = subprocess.run(
                [sys.executable, "-m", __name__, str(self.log)],
                stdin=stdin,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)])},
                timeout=START_S,
                check=True,
            ).stdout
        finally:
            os.close(stdin)
        pid, _, self.address = told.decode().strip().partition(" ")
        if not self.address:
            raise RuntimeError(f"the cluster has not started: {self.log.read_text()}")
        self._pidfd = os.pidfd_open(int(pid))

    def close(self) -> None:
        """End it, and wait for its end."""
        os.close(self._lifeline)
        if not select.select([self._pidfd], [], [], END_S)[0]:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        os.close(self._pidfd)
        self._directory.cleanup()


def _start(log: str) -> None:
    """Start the cluster apart from here, and say its process and its address."""
    with open(log, "wb") as file:
        cluster = subprocess.Popen(
            [sys.executable, "-m", "tests.executor.on_engine.cluster"],
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=True,
        )
    assert cluster.stdout is not None
    address = cluster.stdout.readline().decode()
    sys.stdout.write(f"{cluster.pid} {address}")


async def _serve() -> None:
    """Be the cluster until stdin ends."""
    from distributed import LocalCluster

    cluster = await LocalCluster(
        n_workers=NODES,
        threads_per_worker=THREADS,
        protocol=PROTOCOL,
        dashboard_address="127.0.0.1:0",
        asynchronous=True,
    )
    os.write(1, cluster.scheduler_address.encode() + b"\n")
    os.dup2(2, 1)  # nobody reads there any more
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(0)
    await cast(Awaitable[None], cluster.close())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _start(sys.argv[1])
    else:
        asyncio.run(_serve())
