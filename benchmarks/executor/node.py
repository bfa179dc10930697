"""A server on a small node, as tables: `python -m benchmarks.executor.node`.

The case that the API server was rewritten for which ours comes from: 0.5 CPU, 750 MB, requests
with 100 MB of imports and 60 MB of their own. First a baseline that spawns a process per request,
then ours: how many ran at once, how many of 30 ended well, what the kernel killed, and what was
told of 20 requests that took far more than they had said.
Then the burst of 30 on the whole machine: memory before, at its peak, and after; and what each
further idle worker keeps. Exit status 1 where a bound is broken.
Needs the right to make control groups.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.bounds import Bound, broken, table
from benchmarks.cgroup import Cgroup, cgroup
from benchmarks.table import aligned

APPLICATION = Path(__file__).with_name("node_app.py")
NODE_BYTES, NODE_CORES = 750_000_000, 0.5
BURST_BYTES, BURST_CORES = 16_000_000_000, float(os.cpu_count() or 1)
REQUESTS, OVERRUNS = 30, 20
MEGABYTES, SECONDS = 60, 2.0
READY_S, END_S = 120.0, 600.0
ENDED = ("succeeded", "failed", "dead")
SETTLE_S = 5.0
"""After a burst, until idle burst workers have ended: `worker_idle_timeout` of the server."""
FURTHER = 4
"""Idle workers that are looked at, beyond those that stay."""
LOOK_S = 0.05
BURST_LEFT_MB, WORKER_MB = 10.0, 6.0


@contextmanager
def server(
    group: Cgroup | None, state: str, *, idle: str = "1s", arguments: Sequence[str] = ()
) -> Iterator[tuple[Any, int]]:
    """A server of the application, inside of a group: its client, and its process id.

    Args:
        group: where it runs.
        state: its folder.
        idle: after which a worker of the burst ends.
        arguments: further ones of its command.
    """
    import forebay

    environment = os.environ | {
        "FOREBAY_STATE_DIR": state,
        "XDG_RUNTIME_DIR": state,
        "FOREBAY_EXECUTOR_WORKER_IDLE_TIMEOUT": idle,
    }
    command = [sys.executable, "-m", "forebay.cli", "serve", str(APPLICATION), "--json", *arguments]
    enter = None if group is None else group.enter
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, preexec_fn=enter
    ) as process:
        try:
            url = f"unix://{_socket(process)}"
            with forebay.Client(url, timeout=READY_S) as client:
                yield client, process.pid
        finally:
            process.terminate()
            process.wait(END_S)


def _socket(process: subprocess.Popen[bytes]) -> str:
    """Where it serves, once the application is imported."""
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if told["event"] == "ready":
            return str(told["socket"])
    raise RuntimeError(f"the server ended with status {process.wait()}")


def spawned(at_once: int, group: Cgroup) -> dict[str, Any]:
    """The baseline with so many at once: as many requests, once."""
    before = group.kills()
    arguments = [str(at_once), str(at_once), str(MEGABYTES), str(SECONDS)]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.executor.node_spawner", *arguments],
        preexec_fn=group.enter,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=END_S,
    )
    done = int(ended.stdout or 0)
    return {"at_once": at_once, "done": done, "kills": group.kills() - before}


def at_once(rows: list[dict[str, Any]]) -> int:
    """The most requests that ran at the same time."""
    moments = []
    for row in rows:
        moments.append((datetime.fromisoformat(row["started_at"]), 1))
        moments.append((datetime.fromisoformat(row["ended_at"]), -1))
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


def submitted(client: Any, group: Cgroup, *, megabytes: int = MEGABYTES) -> dict[str, Any]:
    """Submit the requests and wait for them all."""
    before, kills = group.anonymous_bytes(), group.kills()
    started = time.monotonic()
    requests = [
        client.submit_nowait("work", megabytes=megabytes, seconds=SECONDS) for _ in range(REQUESTS)
    ]
    peak = _watch(group, lambda: all(request.status() in ENDED for request in requests))
    took = time.monotonic() - started
    rows = client.list(name="work", limit=REQUESTS)
    time.sleep(SETTLE_S)
    return {
        "done": sum(request.exception(timeout=END_S) is None for request in requests),
        "at_once": at_once(rows),
        "kills": group.kills() - kills,
        "seconds": took,
        "before": before,
        "peak": peak,
        "after": group.anonymous_bytes(),
    }


def _watch(group: Cgroup, done: Callable[[], bool]) -> int:
    """The most anonymous memory until something is done."""
    peak, deadline = 0, time.monotonic() + END_S
    while not done() and time.monotonic() < deadline:
        peak = max(peak, group.anonymous_bytes())
        time.sleep(LOOK_S)
    return peak


def overrun(client: Any) -> dict[str, Any]:
    """Have requests take far more than they said; what was told of each."""
    from forebay.errors import DiedError

    told = []
    for _ in range(OVERRUNS):
        try:
            client.run("overrun")
        except DiedError as error:
            told.append((error.cause, error.peak_bytes, error.limit_bytes))
    named = [one for one in told if one[0] == "memory" and one[1] and one[2]]
    return {"told": len(named), "example": told[0] if told else None}


def idle_workers(state: str) -> list[int]:
    """What each worker beyond those that stay has for itself, idle after a request."""
    with server(None, state, idle="60s") as (client, _):

        def workers() -> set[int]:
            return {one["pid"] for one in client.ask("workers")["workers"]}

        client.run("work", megabytes=MEGABYTES, seconds=0.0)  # what one needs is learnt
        staying = workers()
        calls = [
            client.submit_nowait("work", megabytes=MEGABYTES, seconds=SECONDS)
            for _ in range(1 + FURTHER)
        ]
        for call in calls:
            call.result(timeout=END_S)
        time.sleep(SETTLE_S)
        return [processes.private_bytes(pid) for pid in workers() - staying]


def small_node() -> tuple[list[tuple[str, ...]], dict[str, Any]]:
    """The node of 0.5 CPU and 750 MB."""
    rows: list[tuple[str, ...]] = []
    found: dict[str, Any] = {}
    with cgroup(NODE_BYTES, NODE_CORES) as group:
        for count in (2, 3, 4, 5):
            one = spawned(count, group)
            ended = f"{one['done']} of {count}"
            rows.append((f"spawned, {count} at once", ended, str(one["kills"])))
        found["spawned"] = rows[:]
    with (
        cgroup(NODE_BYTES, NODE_CORES) as group,
        tempfile.TemporaryDirectory() as state,
        server(group, state) as (client, pid),
    ):
        burst = submitted(client, group)
        found |= {"burst": burst, "overruns": overrun(client), "server_lives": _lives(pid)}
    rows.append(
        (
            f"forebay, at most {burst['at_once']} at once, {burst['seconds']:.0f} s",
            f"{burst['done']} of {REQUESTS}",
            str(burst["kills"]),
        )
    )
    return rows, found


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").exists()


def whole_machine() -> dict[str, Any]:
    """The burst of 30 where there is room for all."""
    with (
        cgroup(BURST_BYTES, BURST_CORES) as group,
        tempfile.TemporaryDirectory() as state,
        server(group, state) as (client, _),
    ):
        submitted(client, group, megabytes=1)  # what one needs is learnt
        return submitted(client, group)


def bounds(found: dict[str, Any]) -> list[Bound]:
    """What was asked of the two scenes, beside what was found."""
    node, burst, workers = found["burst"], found["whole machine"], found["idle workers"]
    more = max(0.0, (burst["after"] - burst["before"]) / 1e6)
    return [
        Bound(f"of {REQUESTS} on the small node ended well", *(node["done"], REQUESTS, ""), True),
        Bound("killed by the kernel there", node["kills"], 0, ""),
        Bound(
            f"of {OVERRUNS} overruns told with cause, peak and limit",
            *(found["overruns"]["told"], OVERRUNS, ""),
            at_least=True,
        ),
        Bound("servers that lived through them", *(int(found["server_lives"]), 1, ""), True),
        Bound(f"of {REQUESTS} in the burst ended well", *(burst["done"], REQUESTS, ""), True),
        Bound("after the burst, more than before, anonymous", more, BURST_LEFT_MB, "MB"),
        Bound(
            f"each further idle worker, private, most of {len(workers)}",
            *(max(workers) / 1e6, WORKER_MB, "MB"),
        ),
    ]


def memory_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What was measured of the burst's memory, as lines of a table."""
    burst = found["whole machine"]
    return [
        ("before the burst, anonymous", _mb(burst["before"])),
        ("at its peak, anonymous", _mb(burst["peak"])),
        ("after it, anonymous", _mb(burst["after"])),
    ]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    rows, found = small_node()
    print(f"\n{NODE_CORES} CPU and {NODE_BYTES / 1e6:.0f} MB, {MEGABYTES} MB a request:\n")
    print(aligned(("how", "ended well", "killed by the kernel"), rows))
    told = found["overruns"]
    print(f"\noverruns told with cause, peak and limit: {told['told']} of {OVERRUNS}")
    print(f"first of them: {told['example']}; the server lives: {found['server_lives']}")
    burst = found["whole machine"] = whole_machine()
    print(f"\n{REQUESTS} requests where there is room, {burst['at_once']} of them at once:\n")
    with tempfile.TemporaryDirectory() as state:
        found["idle workers"] = idle_workers(state)
    print(f"{aligned(('memory', 'MB'), memory_lines(found))}\n")
    asked = bounds(found)
    print(table(asked))
    if options.json:
        Path(options.json).write_text(json.dumps(found, default=str, indent=1))
    return broken(asked)


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f}"


if __name__ == "__main__":
    sys.exit(main())
