"""Bounds are shown beside what was measured, and a broken one fails the run."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bounds import Bound, broken, table
from benchmarks.executor import node as executor_node
from benchmarks.gateway import node as gateway_node
from tests.tidy.tree import ROOT

HELD = re.findall(r"hold -m (benchmarks[\w.]*)", (ROOT / "Makefile").read_text())

HOLDS = Bound("a death is told", 12.0, 100.0, "ms")
BROKEN = Bound("a restart", 1.2, 1.0, "s")
FEW = Bound("of 30 ended well", 29, 30, "", at_least=True)
UNKNOWN = Bound("verbs", None, 10.0, "s", reason="no kernel; make test-verbs")


def test_a_broken_bound_is_the_exit_status():
    """Whoever runs `make node` need not read the table to know."""
    assert broken([HOLDS, UNKNOWN]) == 0
    assert broken([HOLDS, BROKEN]) == 1
    assert broken([FEW]) == 1


def test_the_table_has_what_was_asked_beside_what_was_measured():
    """And what could not be measured says what to type."""
    lines = [re.split(r"  +", line) for line in table([HOLDS, BROKEN, FEW, UNKNOWN]).splitlines()]
    assert lines[1:] == [
        ["a death is told", "<= 100 ms", "12 ms", "holds"],
        ["a restart", "<= 1 s", "1.2 s", "BROKEN"],
        ["of 30 ended well", ">= 30", "29", "BROKEN"],
        ["verbs", "<= 10 s", "-", "not measured: no kernel; make test-verbs"],
    ]


@pytest.mark.parametrize("module", HELD)
def test_make_node_runs_programs_that_end_with_a_status(module: str):
    """A bound that nobody runs is none."""
    main = importlib.import_module(module).main
    assert main.__annotations__["return"] == "int"


def found(**changes: int) -> dict[str, object]:
    """What a small node and a burst gave, all being well but for the changes."""
    well = {"done": 30, "kills": 0, "before": 100e6, "after": 101e6}
    return {
        "burst": well,
        "overruns": {"told": 20},
        "server_lives": True,
        "whole machine": well | changes,
        "idle workers": [4_000_000],
    }


def test_the_small_nodes_bounds_are_held():
    """Memory that stays after a burst, and a request that is lost, fail the run."""
    assert broken(executor_node.bounds(found())) == 0
    assert broken(executor_node.bounds(found(after=112_000_000))) == 1
    assert broken(executor_node.bounds(found(done=29))) == 1
    assert broken(executor_node.bounds(found() | {"idle workers": [7_000_000]})) == 1


def behind_a_gateway(served: int = 100, **changes: object) -> dict[str, object]:
    """The same over HTTP."""
    rows = [
        {"readers": "gateway, none", "asked": 0, "served": 0},
        {"readers": "gateway, 100", "asked": 100, "served": served},
    ]
    well = {"burst": {"done": 30}, "burst, followed": {"done": 30}, "kills": 0}
    return well | {"rows": rows, "served after it": 100} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"burst": {"done": 29}},
        {"burst, followed": {"done": 29}},
        {"kills": 1},
        {"served": 99},
        {"served after it": 99},
    ],
)
def test_the_small_node_behind_a_gateway_is_held(changes: dict[str, Any]):
    """A request that is lost, a process that is killed and a reader that gets nothing fail it."""
    assert broken(gateway_node.bounds(behind_a_gateway())) == 0
    assert broken(gateway_node.bounds(behind_a_gateway(**changes))) == 1


def test_a_small_crowd_is_held_to_the_high_water_mark(tmp_path: Path):
    """A peer that does not read costs the server the mark and the message that crossed it."""
    file = tmp_path / "crowd.json"
    command = [sys.executable, "-m", "benchmarks.transport.crowd", "--connections", "40"]
    ran = subprocess.run(
        [*command, "--json", str(file)], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert ran.returncode in (0, 1), ran.stderr
    bounds = {each["what"]: Bound(**each) for each in json.loads(file.read_text())}
    assert bounds["connections open at once"].holds
    held = bounds["held for one that does not read"]
    assert held.holds
    assert held.measured is not None
    assert held.measured > 2**19
