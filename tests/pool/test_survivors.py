"""SIGKILL of a client, fifty times: what it had started is gone within 50 ms.

That is on a machine that has a core for each process that wants one; where more want to run, each
gets its share, and all has that much longer, but never longer than a second.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest

from tests.pool.processes import alive
from tests.pool.test_client_death import client

TRIALS = 50
GONE_MS = 50
GONE_MS_MAX = 1000
"""On no machine, however crowded, a survivor has longer."""


def crowding() -> float:
    """Threads that want to run now for each core; at least 1."""
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    return max(1.0, running / len(os.sched_getaffinity(0)))


def survivors(pidfds: dict[int, int], milliseconds: float) -> list[int]:
    """The processes that have not ended after so long, by the pidfds that tell when they do."""
    deadline = time.monotonic() + milliseconds / 1000
    running = dict(pidfds)
    poll = select.poll()
    for pidfd in pidfds.values():
        poll.register(pidfd, select.POLLIN)
    while running:
        left = deadline - time.monotonic()
        ready = poll.poll(max(0.0, left) * 1000)
        for pidfd, _ in ready:
            poll.unregister(pidfd)
            running = {pid: other for pid, other in running.items() if other != pidfd}
        if left <= 0 and not ready:
            break
    return list(running)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_nobody_survives_a_killed_client_fifty_times(tmp_path: Path) -> None:
    """Three services with a child each: one as usual, one ignores SIGTERM, one is stopped."""
    late: list[str] = []
    for trial in range(TRIALS):
        scratch = tmp_path / str(trial)
        scratch.mkdir()
        with client("wait_for_the_end", scratch) as killed:
            pidfds = {pid: os.pidfd_open(pid) for pid in killed.owned}
            try:
                allowed = min(GONE_MS * crowding(), GONE_MS_MAX)
                killed.process.send_signal(signal.SIGKILL)
                left = survivors(pidfds, allowed)
                if left:
                    late.append(f"trial {trial}: {left} alive after {allowed:.0f} ms")
            finally:
                for pidfd in pidfds.values():
                    os.close(pidfd)
            killed.expect_nothing_left()
            assert not any(map(alive, killed.owned))
    assert late == []
