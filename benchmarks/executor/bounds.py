"""What a server promises in seconds and bytes: `python -m benchmarks.executor.bounds`.

A restart after SIGKILL, the death of a worker, a listing while five hundred wait, what server and
keeper keep at rest, and the tests of verbs where their guest is built. Exit status 1 where a bound
is broken; the figures count on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.bounds import Bound, broken, table
from benchmarks.executor.program import ON_DISK
from benchmarks.runner import ROOT

APPLICATION = Path(__file__).with_name("lanes_app.py")
READY_S, END_S = 60.0, 60.0
BEGUN, RESTARTS, RESUMED_S = 20, 5, 1.0
DEATHS, TOLD_MS = 20, 100.0
WAITING, LISTED, LISTINGS, LISTED_MS = 500, 100, 200, 50.0
REST_MB = 45.0
VERBS_S = 10.0
VERBS = re.compile(r"==> verbs: (\d+) s")


class Server:
    """`forebay serve` of the application, with its state in a folder."""

    def __init__(self, folder: str, **settings: str) -> None:
        named = {f"FOREBAY_EXECUTOR_{name}": value for name, value in settings.items()}
        self._environment = {
            **os.environ,
            "FOREBAY_STATE_DIR": folder,
            "XDG_RUNTIME_DIR": folder,
            **named,
        }

    @contextmanager
    def running(self) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
        """A client and the process, which ends with the block however it is."""
        import forebay

        command = [sys.executable, "-m", "forebay.cli", "serve", str(APPLICATION), "--json"]
        process = subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, text=True
        )
        try:
            with process, forebay.Client(f"unix://{_socket(process)}", timeout=READY_S) as client:
                yield client, process
                _end(process)
        finally:
            _end(process)


def _socket(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if "socket" in told:
            return str(told["socket"])
    raise RuntimeError(f"the server ended with status {process.wait()}")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait(END_S)


def restart() -> float:
    """Seconds from the start of a server, after SIGKILL, until what had waited has ended."""
    with tempfile.TemporaryDirectory(prefix="fb-", dir=ON_DISK) as folder:
        server = Server(folder, MAX_WORKERS="2")
        with server.running() as (client, process):
            client.submit("occupy", seconds=600.0)
            ids = [client.submit("occupy", seconds=0.0).id for _ in range(BEGUN)]
            below = [os.pidfd_open(pid) for pid in processes.descendants(process.pid)]
            process.kill()
            process.wait()
            for pidfd in below:
                processes.wait_for_end(pidfd)
        started = time.monotonic()
        with server.running() as (client, _):
            for id_ in ids:
                client.get(id_).result(timeout=END_S)
            return time.monotonic() - started


def deaths(client: Any) -> list[float]:
    """Milliseconds from SIGKILL of a worker until whoever waits for its request is told."""
    from forebay.errors import DiedError

    told = []
    for _ in range(DEATHS):
        request = client.submit("occupy", seconds=600.0)
        worker = _worker_of(client, request.id)
        began = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        error = request.exception(timeout=END_S)
        told.append((time.monotonic() - began) * 1e3)
        if not isinstance(error, DiedError) or error.signal != signal.SIGKILL:
            raise ValueError(f"the death of worker {worker} was told as {error!r}")
    return told


def _worker_of(client: Any, id_: str) -> int:
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        for worker in client.ask("workers")["workers"]:
            if id_ in worker["running"]:
                return int(worker["pid"])
        time.sleep(0.001)
    raise TimeoutError(f"request {id_} did not begin in {END_S:.0f} s")


def listings(client: Any) -> list[float]:
    """Milliseconds of listings with their reasons, sorted, while many wait and some run."""
    requests = client.submit_many("occupy", [{"seconds": 0.05}] * WAITING)
    took = []
    for _ in range(LISTINGS):
        began = time.monotonic()
        client.ask("list", {"status": ["queued"]}, LISTED, None)
        took.append((time.monotonic() - began) * 1e3)
    for request in requests:
        request.cancel()
    return sorted(took)


def at_rest() -> float:
    """Megabytes of a server with its store and of its keeper, proportional, no worker being there.

    The template, which holds the application, is left out: it is as large as the application.
    """
    settings = {"SHORT_WORKERS": "0", "LONG_WORKERS": "0", "WORKER_IDLE_TIMEOUT": "100ms"}
    with (
        tempfile.TemporaryDirectory(prefix="fb-", dir=ON_DISK) as folder,
        Server(folder, **settings).running() as (client, process),
    ):
        client.run("begun")
        deadline = time.monotonic() + END_S
        while len(below := processes.descendants(process.pid)) != 2:
            if time.monotonic() > deadline:
                raise TimeoutError(f"at rest, {len(below)} processes are below the server, not 2")
            time.sleep(0.01)
        keepers = [pid for pid in below if b"run_keeper" in _command(pid)]
        if len(keepers) != 1:
            raise ValueError(f"one keeper below the server, not {len(keepers)}")
        return processes.memory_bytes([process.pid, *keepers]) / 1e6


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def verbs() -> Bound:
    """Seconds of the tests of verbs, where the guest's kernel has been built."""
    what = "tests of verbs, from the guests' start to their end"
    ran = subprocess.run(
        ["bash", "tools/verbs/test.sh", "if-built"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = VERBS.search(ran.stdout)
    if found is None:
        said = (ran.stdout + ran.stderr).strip().splitlines() or ["nothing was said"]
        return Bound(what, None, VERBS_S, "s", reason=f"{said[-1]}; make test-verbs")
    return Bound(what, float(found[1]), VERBS_S, "s")


def measured() -> list[Bound]:
    """Measure everything."""
    restarts = [restart() for _ in range(RESTARTS)]
    with (
        tempfile.TemporaryDirectory(prefix="fb-", dir=ON_DISK) as folder,
        Server(folder).running() as (client, _),
    ):
        told, listed = deaths(client), listings(client)
    return [
        Bound(
            f"a killed server starts, {BEGUN} that waited have ended, worst of {RESTARTS}",
            *(max(restarts), RESUMED_S, "s"),
        ),
        Bound(f"a killed worker is told, worst of {DEATHS}", max(told), TOLD_MS, "ms"),
        Bound(
            f"a listing of {LISTED} of {WAITING} that wait, p99 of {LISTINGS}",
            *(listed[LISTINGS * 99 // 100], LISTED_MS, "ms"),
        ),
        Bound("server with its store, and keeper, at rest", at_rest(), REST_MB, "MB"),
        verbs(),
    ]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the bounds there as well")
    options = parser.parse_args()
    bounds = measured()
    print(table(bounds))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(bound) for bound in bounds], indent=1))
    return broken(bounds)


if __name__ == "__main__":
    sys.exit(main())
