"""Requests that need more memory than there is, in a real control group.

Half of them grow step by step, which the server's guard sees; half of them take it all at once,
which only the kernel's OOM killer is fast enough for.
"""

from __future__ import annotations

import os
import select
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cgroup import Cgroup, cgroup
from tests.executor.serving import Caller, RefusedError, Serving, until

APP = '''
import os
import time

import forebay

app = forebay.App("greedy")


def greedy(number: int) -> None:
    """A request of its own for each, because the server learns what a name needs."""

    @app.request(name=f"grow-{number}", memory="60MB")
    def grow(path: str) -> None:
        """Take memory in steps, as a program does that reads more and more."""
        begin(path)
        taken = [b"x" * 250_000_000]
        while True:
            taken.append(b"x" * 2_000_000)
            time.sleep(0.05)

    @app.request(name=f"leap-{number}", memory="60MB")
    def leap(path: str) -> None:
        """Take it all at once."""
        begin(path)
        taken = b"x" * 2_000_000_000


for number in range(20):
    greedy(number)


@app.request(memory="20MB")
def steady(path: str) -> int:
    """Be a neighbour until the file is gone."""
    begin(path)
    while os.path.exists(path):
        time.sleep(0.01)
    return os.getpid()


def begin(path: str) -> None:
    print("greedy as ever", flush=True)
    with open(path + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".new", path)
'''
LIMIT_BYTES = 400 << 20
OVERRUNS = int(os.environ.get("FOREBAY_CHAOS_OVERRUNS", "8"))
"""`make chaos` has 20."""
TOLD_S = 0.1 if "FOREBAY_CHAOS_OVERRUNS" in os.environ else 0.5
"""From the death of the worker to its cause in the client's hands: by `make chaos`, or beside the
other tests."""


@pytest.fixture
def group() -> Iterator[Cgroup]:
    """A control group of this size."""
    try:
        with cgroup(LIMIT_BYTES, cores=4.0) as made:
            yield made
    except PermissionError as error:
        pytest.skip(str(error))


class Deathwatch(threading.Thread):
    """Notes when a process ends."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.ended_at = 0.0
        self._pidfd = os.pidfd_open(pid)
        self.start()

    def run(self) -> None:
        """Wait for its end."""
        select.select([self._pidfd], [], [])
        self.ended_at = time.monotonic()
        os.close(self._pidfd)


def begun(caller: Caller, id_: str, path: Path) -> int:
    """The process that runs the request, which writes this file."""
    until(path.exists, why=lambda: (caller.ask("why", id_), caller.ask("workers")))
    return int(path.read_text())


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_overrun_is_named_and_hurts_nobody_else(
    tmp_path: Path, group: Cgroup, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cause, peak and limit are told at once; the neighbour and the server go on."""
    serving = Serving(tmp_path, APP, group=group.memory, long_workers=2, max_workers=3)
    late: list[float] = []
    told: list[dict[str, Any]] = []
    with serving, serving.caller() as caller:
        neighbour = tmp_path / "neighbour"
        beside = caller.submit("steady", path=str(neighbour))
        its_pid = begun(caller, beside, neighbour)
        for number in range(OVERRUNS):
            path = tmp_path / str(number)
            name = f"leap-{number}" if number % 2 else f"grow-{number}"
            id_ = caller.submit(name, path=str(path))
            death = Deathwatch(begun(caller, id_, path))
            with pytest.raises(RefusedError) as caught:
                caller.wait(id_)
            heard = time.monotonic()
            death.join()
            late.append(heard - death.ended_at)
            told.append(caught.value.told)
        neighbour.unlink()
        assert caller.wait(beside) == its_pid, "the neighbour has lost its worker"
        assert caller.ask("info")["pid"] == serving.pid
    kernel, peaks = group.kills(), [one["peak_bytes"] for one in told]
    with capsys.disabled():
        sys.stdout.write(
            f"\n{len(told)} overruns, {kernel} ended by the kernel; told after"
            f" {statistics.median(late) * 1000:.0f} ms (median), {max(late) * 1000:.0f} ms (worst);"
            f" peaks {min(peaks) / 1e6:.0f} to {max(peaks) / 1e6:.0f} MB\n"
        )
    assert [one["cause"] for one in told] == ["memory"] * OVERRUNS
    assert [one["limit_bytes"] for one in told] == [LIMIT_BYTES] * OVERRUNS
    assert all(20_000_000 < peak <= 1.1 * LIMIT_BYTES for peak in peaks), peaks
    assert all("greedy as ever" in one["last_output"] for one in told)
    assert kernel > 0, "nobody is faster than a leap but the kernel"
    assert statistics.median(late) < TOLD_S
