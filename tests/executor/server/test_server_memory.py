"""A server in a cgroup that is too small for what it is asked: nobody dies who need not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cgroup import Cgroup, cgroup
from tests.executor.serving import RefusedError, Serving, until

LIMIT = 400_000_000
PATIENCE_S = 100.0
"""In the guest of `make test-verbs` 100,000 page faults take nine seconds, or more."""

APP = """
import time

import forebay

BASE = b"x" * 60_000_000      # what its imports would take, shared by all workers
app = forebay.App("hungry")

@app.request(memory="65MB")
def eat(mb: int, seconds: float = 0.0) -> int:
    taken = bytearray(mb * 1_000_000)
    for place in range(0, len(taken), 4096):
        taken[place] = 1
    time.sleep(seconds)
    return mb
"""


@pytest.fixture
def group() -> Iterator[Cgroup]:
    """A control group of this size, of the version that this machine has."""
    try:
        with cgroup(LIMIT, cores=4.0) as made:
            yield made
            until(lambda: not (made.memory / "cgroup.procs").read_text())
    except PermissionError as error:
        pytest.skip(str(error))


def test_what_does_not_fit_waits_with_a_reason(tmp_path: Path, group: Cgroup) -> None:
    """Twelve requests of 60 MB in 400 MB: all end well, without a kill."""
    with Serving(tmp_path, APP, group=group.memory) as serving, serving.caller() as caller:
        caller.timeout = PATIENCE_S
        assert caller.ask("info")["figures"]["memory_limit_bytes"] <= LIMIT
        ids = [caller.submit("eat", mb=60, seconds=0.2) for _ in range(12)]
        reasons = set()
        for id in ids:
            told = caller.ask("status", id)
            if told["status"] == "queued":
                reasons.add(told["reason"].partition(":")[0])
        assert reasons == {"waiting"}
        assert [caller.wait(id) for id in ids] == [60] * 12
        assert group.kills() == 0


def test_forced_overruns_are_named_and_cost_only_themselves(tmp_path: Path, group: Cgroup) -> None:
    """The server is never the victim, and "signal 9" is not all that one is told."""
    with Serving(tmp_path, APP, group=group.memory) as serving, serving.caller() as caller:
        caller.timeout = PATIENCE_S
        for _ in range(5):
            id = caller.submit("eat", mb=900)
            with pytest.raises(RefusedError) as caught:
                caller.wait(id)
            told = caught.value.told
            assert told["cause"] == "memory"
            assert told["limit_bytes"] <= LIMIT
            assert "for want of memory" in caller.ask("why", id)["reason"]
            assert caller.run("eat", mb=1) == 1
        assert caller.ask("info")["pid"] == serving.pid
