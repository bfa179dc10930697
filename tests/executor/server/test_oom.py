"""Telling a kill of the kernel's OOM killer from any other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cgroup import Cgroup, cgroup
from forebay.executor.server.oom import OomKills


@pytest.mark.parametrize(
    ("cgroup", "counter"),
    [
        ("0::/a/b\n", "cgroups/a/b/memory.events"),
        ("0::/../elsewhere\n", "cgroups/memory.events"),
        ("4:cpu,memory:/a\n0::/\n", "cgroups/memory/a/memory.oom_control"),
        ("4:memory:/outside\n0::/\n", "cgroups/memory/memory.oom_control"),
        ("0::/\n", "proc/vmstat"),
        ("", "proc/vmstat"),
    ],
)
def test_each_kill_is_told_once(tmp_path: Path, cgroup: str, counter: str) -> None:
    """Both versions of cgroups, inside and outside of containers, and machines without any."""

    def count(kills: int) -> None:
        path = tmp_path / counter
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\nlow 7\n")

    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    count(3)  # before we came
    kills = OomKills(tmp_path / "proc", tmp_path / "cgroups")
    assert not kills.was_killed()
    count(5)
    assert kills.was_killed()
    assert kills.was_killed()
    assert not kills.was_killed()


def test_where_the_kernel_tells_nothing_nothing_is_claimed(tmp_path: Path) -> None:
    """A wrong cause is worse than none."""
    assert not OomKills(tmp_path, tmp_path).was_killed()


@pytest.fixture
def small_group() -> Iterator[Cgroup]:
    """A control group of 60 MB, of the version that this machine has."""
    try:
        with cgroup(60_000_000, cores=4.0) as made:
            yield made
    except PermissionError as error:
        pytest.skip(str(error))


def test_a_real_kill_is_told_from_anybody_elses(small_group: Cgroup) -> None:
    """The counter has grown when the death is known."""
    code = """
import os, signal, subprocess, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
from forebay.executor.server.oom import OomKills
kills = OomKills()
greedy = "open('/proc/self/oom_score_adj', 'w').write('1000'); x = bytearray(200_000_000)"
for code in (greedy, "import os; os.kill(os.getpid(), 9)", greedy):
    ended = subprocess.run([sys.executable, "-S", "-c", code]).returncode
    print(ended, kills.was_killed(), flush=True)
"""
    told = subprocess.run(
        [sys.executable, "-c", code, str(small_group.memory)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=50,
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ).stdout
    assert told.splitlines() == ["-9 True", "-9 False", "-9 True"]
