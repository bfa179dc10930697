"""Scene B: thirty launches on half a core and 750 MB, through a SIGKILL of the server."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import forebay
from benchmarks.cgroup import Cgroup, cgroup
from tools.scenes.shell import WAIT_S, Scene

APPLICATION = "examples/small_node/launch.py"
EXAMPLES = ("small_node",)
PACKAGES = ("numpy", "matplotlib")
NODE_BYTES, NODE_CORES = 750_000_000, 0.5
JOBS = 30
LISTINGS = 50
LISTING_S = 0.05


def play(scene: Scene) -> None:
    """Submit, kill the server, and count what came of what it had accepted."""
    record = scene.home / "record"
    application = str(scene.home / APPLICATION)
    with cgroup(NODE_BYTES, NODE_CORES) as group:
        scene.part("submit")
        with scene.served(APPLICATION, group=group) as pid:
            scene.shell(
                f"for i in $(seq {JOBS}); do forebay submit launch --name job-$i"
                f" --record {record}; done | tail -1",
                shown=f"for i in $(seq {JOBS}); do forebay submit launch --name job-$i; done",
            )
            scene.shell("forebay top | cut -c1-100", shown="forebay top")
            scene.part("why")
            why = scene.shell("forebay why @last")
            scene.expect("waiting:" in why, "the last one says what it waits for")
            scene.part("kill")
            scene.say(f"# the server is killed: kill -9 {pid}")
            os.kill(pid, signal.SIGKILL)
        with (
            scene.served(APPLICATION, group=group),
            forebay.Client(app=application, start=False) as client,
        ):
            _until_runs(client)
            times = _listings(client)
            scene.shell("forebay wait @last --progress none")
            _wait_for_all(client)
            failed = scene.shell("forebay ps --failed --json")
            scene.expect(failed == "", f"no launch failed: {failed}")
            rows = client.list(limit=100)
        _conclude(scene, rows, times, record, group)


def _until_runs(client: forebay.Client) -> None:
    """Wait until the application is imported, for which the group gives up its whole quota."""
    deadline = time.monotonic() + WAIT_S
    while not client.list(status="running") and time.monotonic() < deadline:
        time.sleep(0.05)


def _listings(client: forebay.Client) -> list[float]:
    """Seconds that the server takes for a listing while it is busy."""
    times = []
    for _ in range(LISTINGS):
        start = time.perf_counter()
        client.list(limit=100)
        times.append(time.perf_counter() - start)
        time.sleep(0.1)
    return times


def _wait_for_all(client: forebay.Client) -> None:
    rows = client.list(limit=100)
    _, others = client.wait([client.get(row["id"]) for row in rows], timeout=WAIT_S)
    if others:
        raise TimeoutError(f"{len(others)} requests have not ended")


def _conclude(
    scene: Scene, rows: list[dict[str, Any]], times: list[float], record: Path, group: Cgroup
) -> None:
    names = Counter(record.read_text().split())
    statuses = Counter(row["status"] for row in rows)
    again = sum(row["attempts"] > 1 for row in rows)
    quick = sum(seconds <= LISTING_S for seconds in times)
    median = statistics.median(times)
    scene.say(f"# {dict(statuses)} of {len(rows)}; {again} were at work when the server was killed")
    scene.say(f"# {len(names)} names were written down, {max(names.values())} time each at most")
    scene.say(f"# killed by the kernel: {group.kills()}")
    scene.say(
        f"# listings while they ran: {median * 1e3:.1f} ms (median), "
        f"{quick} of {len(times)} within {LISTING_S * 1e3:.0f} ms, "
        f"{max(times) * 1e3:.0f} ms at most"
    )
    scene.say(f"# the group's quota was used up in {group.stalled():.0%} of all tenths of a second")
    scene.expect(statuses == {"succeeded": JOBS}, f"{JOBS} of {JOBS} finished: {dict(statuses)}")
    scene.expect(again > 0, "the server was killed while launches ran")
    scene.expect(len(names) == JOBS, f"each launch left its name: {len(names)}")
    scene.expect(max(names.values()) == 1, f"none ended twice: {names.most_common(3)}")
    scene.expect(group.kills() == 0, f"the kernel killed none: {group.kills()}")
    scene.expect(median <= LISTING_S, f"a listing takes 50 ms at most: {median:.3f} s")
