"""The harness compares what it says it compares, and leaves nothing running."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import harness, table
from benchmarks.claim import Claim, Contestant
from benchmarks.runner import ContestantError, run_round
from tests.tidy.tree import ROOT

OURS = Contestant("ours", "module:ours")
PEER = Contestant("peer", "module:peer")


def series(contestant: Contestant, *values: float, failure: str = "") -> harness.Series:
    """Rounds with these values of the figure `mean`."""
    return harness.Series(contestant, [{"mean": value} for value in values], {}, failure)


def test_a_ratio_above_one_means_that_ours_is_better():
    """Nobody has to think about which way round a row is."""
    latency = Claim("a.b.vs_c", OURS, PEER, "mean", "us")
    throughput = Claim("a.b.vs_c", OURS, PEER, "mean", "calls/s", higher_is_better=True)
    assert latency.ratio(ours=2.0, peer=6.0) == 3.0
    assert throughput.ratio(ours=6.0, peer=2.0) == 3.0


def test_a_row_compares_medians_and_shows_the_spread():
    """One disturbed round neither makes nor breaks a claim, and is seen."""
    claim = Claim("a.b.vs_c", OURS, PEER, "mean", "us")
    rounds = {"ours": series(OURS, 1.0, 1.0, 9.0), "peer": series(PEER, 3.0, 3.0, 3.0)}
    row = harness.row(claim, rounds, {})
    assert row["ratio"] == 3.0
    assert row["spread"] == [pytest.approx(1 / 3), 3.0]
    assert row["rounds"] == 3


def test_a_note_stands_beside_its_row():
    """Whoever reads the ratio reads what it depends on."""
    claim = Claim("a.b.vs_c", OURS, PEER, "mean", "us", note="both count shared pages")
    plain = Claim("a.b.vs_d", OURS, PEER, "mean", "us")
    rounds = {"ours": series(OURS, 1.0), "peer": series(PEER, 1.0)}
    rows = [harness.row(each, rounds, {}) for each in (claim, plain)]
    assert rows[0]["note"] == "both count shared pages"
    lines = table.claims_table(rows).splitlines()
    assert lines[3:] == ["a.b.vs_c: both count shared pages"]


def test_a_peer_that_does_not_run_is_a_row_with_its_reason():
    """A missing peer is not mistaken for a result, nor for a claim that nobody measured."""
    claim = Claim("a.b.vs_c", OURS, PEER, "mean", "us")
    rounds = {"ours": series(OURS, 1.0), "peer": series(PEER, failure="not installed")}
    row = harness.row(claim, rounds, {})
    assert (row["ratio"], row["skipped"]) == (None, "peer: not installed")


@pytest.mark.parametrize("system", command.SYSTEMS)
def test_every_claim_carries_its_systems_name_and_runs_functions_that_exist(system: str):
    """A renamed function is noticed before a long run."""
    claims = command.claims_of(system, None)
    assert len({claim.name for claim in claims}) == len(claims)
    assert all(claim.name.startswith(f"{system}.") for claim in claims)
    for contestant in harness.contestants(claims):
        module, _, function = contestant.function.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def pinned(packages: list[str]) -> dict[str, str]:
    """Versions of those packages whose version is fixed."""
    return dict(package.split("==", 1) for package in packages if "==" in package)


def test_bench_setup_installs_what_ours_needs_in_the_versions_of_the_peers(tmp_path: Path):
    """After `make demo`, rows on uvloop and the small node are measured too, against equals."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    peers = tomllib.loads((ROOT / "benchmarks/peers.toml").read_text())
    ours = pinned(project["dependency-groups"]["bench"])
    assert ours.keys() >= {"uvloop", "scikit-learn", "scipy"}
    for environment in peers.values():
        theirs = pinned(environment["packages"])
        assert {name: ours[name] for name in ours.keys() & theirs.keys()}.items() <= theirs.items()
    stamp = tmp_path / "stamps/group-bench"
    assert str(stamp) in planned("bench-setup", tmp_path)
    groups = [
        line.split()[-1] for line in planned(str(stamp), tmp_path).splitlines() if "--group" in line
    ]
    assert groups == ["build", "demo", "bench"]


def planned(target: str, environment: Path) -> str:
    """What make would do for a target with an environment that is not there yet."""
    command = ["make", "--dry-run", target, f"VENV={environment}", f"PYTHON={sys.executable}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def lacking() -> dict[str, float]:
    """A contestant whose environment lacks what it imports."""
    return {"mean": float(bool(importlib.import_module("no_such_peer")))}


def test_a_row_that_a_missing_package_skips_says_what_to_type():
    """Nobody looks for the environment that a contestant was to run in."""
    with pytest.raises(ContestantError, match=r"No module named 'no_such_peer': make bench-setup$"):
        run_round(Contestant("lacking", f"{__name__}:lacking"), quick=True)


def stray(reason: int) -> dict[str, float]:
    """A contestant that leaves a process behind, out of its group, and fails."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "1000"])
    raise ValueError(reason)


RUN_STRAY = f"""
import os
from benchmarks import processes, runner
from benchmarks.claim import Contestant

runner.LINGER_S = 0.1
runner.adopt_orphans()
try:
    runner.run_round(Contestant("stray", "{__name__}:stray", options={{"reason": 7}}), quick=True)
except runner.ContestantError as error:
    print(error)
print(processes.descendants(os.getpid()))
"""


def test_a_failing_contestant_tells_why_and_leaves_no_process():
    """The next contestant has the machine to itself, and a reader sees what went wrong."""
    result = subprocess.run(
        [sys.executable, "-c", RUN_STRAY], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert result.stdout.splitlines() == ["ended with status 1: ValueError: 7", "[]"]
    assert "left behind" in result.stderr
