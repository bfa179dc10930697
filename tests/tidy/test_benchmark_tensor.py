"""The benchmarks of tensors pull what they say they pull, as they say it."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import peers, runner
from benchmarks.claim import Contestant
from benchmarks.harness import Series
from benchmarks.tensor import programs as tensor_programs
from benchmarks.tensor import squares as tensor_squares
from benchmarks.tensor.experiment import BOTH, NEITHER, traffic
from benchmarks.tensor.load import IN_FLIGHT, TENSORS, Puller, check, contents, destinations
from benchmarks.transport.processes import REPLY_TIMEOUT_S
from tests.tidy.tree import ROOT

SIZE = 64
PINNED_BYTES = 1 << 30
"""More than the programs of these tests register."""

PULLS = """
import benchmarks.{module} as module
from benchmarks import processes
figures = module.{function}(wanted=["4 KiB/rate", "4 KiB/p50"], seconds=0.05, warm_up_s=0.01)
print(sorted(figures))
print(len(processes.descendants(processes.os.getpid())))
"""


@pytest.mark.parametrize(
    ("contestant", "left"),
    [
        ("tensor.peers.sockets:plain", 0),
        ("tensor.peers.sockets:vectored", 0),
        ("tensor.peers.copy:copies", 1),  # the tracker of multiprocessing, which ends with it
        ("tensor.forebay:tcp", 0),
        ("tensor.forebay:tcp_planned", 0),
    ],
)
def test_a_round_gives_every_figure_of_the_wanted_sizes_and_leaves_nothing(
    contestant: str, left: int
):
    """Both sides of the rows pull the same, are checked, and are measured in the same way."""
    module, _, function = contestant.partition(":")
    program = PULLS.format(module=module, function=function)
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=REPLY_TIMEOUT_S / 2,
    )
    assert ended.returncode == 0, ended.stderr
    names = [f"4 KiB/{name}" for name in ("cpu", "memory_mb", "p50", "p99", "rate")]
    assert ended.stdout.splitlines() == [str(names), str(left)]


def puller(one_off: int = 0, many_off: int = 0) -> Puller:
    """Copies tensors, or those that are so many behind them."""
    tensors, out = contents(SIZE), destinations(SIZE)

    def one(number: int) -> None:
        out[number] = tensors[(number + one_off) % TENSORS]

    def many() -> None:
        out[:IN_FLIGHT] = np.roll(tensors, -many_off, axis=0)[:IN_FLIGHT]

    return Puller(out, one, many)


def test_a_tensor_that_is_another_is_no_result():
    """Who pulls anything at all is not fast, in neither way; nor who pulls nothing."""
    check(puller())
    with pytest.raises(ValueError, match="one at a time, other bytes came"):
        check(puller(one_off=1))
    with pytest.raises(ValueError, match="16 at once, other bytes came"):
        check(puller(many_off=1))
    idle = Puller(destinations(SIZE), lambda number: None, lambda: None)
    idle.out[...] = contents(SIZE)
    with pytest.raises(ValueError, match="one at a time, other bytes came"):
        check(idle)


def test_tensors_are_none_alike():
    """A pull of the wrong one is seen."""
    assert len(np.unique(contents(SIZE), axis=0)) == TENSORS


def programs() -> dict[str, dict[str, str]]:
    """The programs, where some build has left them."""
    found = {}
    for name in (tensor_programs.TRAFFIC, tensor_programs.COST):
        for profile in ("release", "debug"):
            path = ROOT / "target" / profile / "examples" / name
            if path.exists():
                found.setdefault(name, {"path": str(path)})
    return found


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a contestant's process is told of the programs."""
    found = programs()
    if tensor_programs.TRAFFIC not in found:
        pytest.skip("not built: cargo build --release -p forebay-tensor --examples")
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if os.geteuid() != 0 and locked != resource.RLIM_INFINITY and locked < PINNED_BYTES:
        pytest.skip(f"an ordinary user may lock {locked} bytes here; it takes root")
    monkeypatch.setenv(tensor_programs.VARIABLE, json.dumps(found))


def ran(**options: object) -> dict[str, float]:
    """What a small run of the traffic says: 2 workers, 2 servers, 4 tensors of each a step."""
    small: Mapping[str, object] = {"workers": 2, "servers": 2, "tensors": 4, "warm_up_ms": 50}
    chosen = {**small, "measured_ms": 100, **options}
    arguments = [f"{name}={value}" for name, value in chosen.items()]
    return tensor_programs.run(tensor_programs.TRAFFIC, *arguments)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("network", ["unix", "tcp"])
@pytest.mark.parametrize("bytes_each", [4096, 1 << 20])
def test_memory_is_registered_for_each_transfer_or_once(network: str, bytes_each: int):
    """What the rows of registration compare is what happens, on both sides."""
    once = ran(network=network, bytes=bytes_each, registration="static")
    assert 2 <= once["registrations"] <= 16
    for registration in ("transfer", "fresh"):
        each = ran(network=network, bytes=bytes_each, registration=registration)
        # Two steps of each worker at least; both sides register.
        assert each["registrations"] >= 2 * (2 * 2) * (2 * 4)


@pytest.mark.usefixtures("built")
def test_bytes_are_under_way_for_as_long_as_the_line_says():
    """A round trip is twice the delay: once for each pull with one slot, once for all with many."""
    delayed = {"delay_ms": 8, "compute_ms": 5, "measured_ms": 300}
    assert ran(**delayed, slots=1)["pull_ms"] >= 4 * 16
    assert ran(**delayed, slots=4)["pull_ms"] >= 16
    assert ran(**delayed, slots=1, entries=4)["pull_ms"] >= 16


@pytest.mark.usefixtures("built")
def test_the_experiment_gives_figures_for_sizes_and_for_scales():
    """The rows find their figures."""
    wanted = ["4 KiB/rate", "50x5 near/rate"]
    figures = traffic(wanted=wanted, slots=16, entries=1, registration="static", seconds=0.1)
    assert all(figures[name] > 0 for name in wanted)


def test_a_program_that_is_not_built_says_why(monkeypatch: pytest.MonkeyPatch):
    """A machine without cargo has rows with a reason."""
    told = {tensor_programs.COST: {"missing": "cargo is not on PATH"}}
    monkeypatch.setenv(tensor_programs.VARIABLE, json.dumps(told))
    with pytest.raises(FileNotFoundError, match="arena_cost is not built: cargo is not on PATH"):
        tensor_programs.run(tensor_programs.COST)


def test_the_square_shows_every_mode_beside_the_one_with_neither():
    """What slots do alone and what registration does alone is always told."""
    neither = Series(NEITHER, [{"4 KiB/rate": 100.0}])
    both = Series(BOTH, [{"4 KiB/rate": 250.0}])
    text = tensor_squares.squares({NEITHER.name: neither, BOTH.name: both})
    head, line = text.splitlines()
    assert head.count("slot") == 5
    assert line.split() == ["4", "KiB", "100", "-", "-", "250", "(2.50x)", "-"]
    assert tensor_squares.squares({}) == ""


def test_a_quick_run_leaves_long_rows_out_unless_they_are_named():
    """The full scales take minutes."""
    quick = argparse.Namespace(quick=True, only=None)
    assert not any(claim.long for claim in command.chosen("tensor", quick))
    full = argparse.Namespace(quick=False, only=None)
    assert sum(claim.long for claim in command.chosen("tensor", full)) == 24
    named = argparse.Namespace(quick=True, only=["tensor.scale.50x5.far.both"])
    assert [claim.long for claim in command.chosen("tensor", named)] == [True]


def test_a_peer_that_does_not_install_is_skipped_with_what_pip_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """NIXL and Mooncake have wheels for few machines."""
    environment = tmp_path / "nixl"
    environment.mkdir()
    (environment / peers.MISSING).write_text("ERROR: No matching distribution found for nixl-cu12")
    monkeypatch.setattr(runner, "ENVIRONMENTS", tmp_path)
    peer = Contestant("NIXL", "benchmarks.tensor.peers.nixl:reads", "nixl")
    with pytest.raises(runner.ContestantError, match="'nixl' does not install: ERROR: No matching"):
        runner.run_round(peer, quick=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_environment_that_may_be_missing_ends_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The other peers are installed nevertheless."""
    listed = tmp_path / "peers.toml"
    listed.write_text(
        '[none]\noptional = true\noptions = ["--no-index"]\npackages = ["no-such-package"]\n'
    )
    monkeypatch.setattr(peers, "LIST", listed)
    peers.install(tmp_path)
    assert "no-such-package" in (tmp_path / "none" / peers.MISSING).read_text()
