"""The alert rules and the board in deploy/ use the metrics of a server and no others."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from forebay.gateway.metrics.families import FAMILIES

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy/prometheus/forebay.rules.yml"
BOARD = ROOT / "deploy/grafana/forebay.json"

METRIC = re.compile(r"\b(forebay_\w+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
OF_SCRAPES = {"job", "instance", "le"}
"""Labels that Prometheus adds."""


def rule_expressions() -> list[str]:
    """The expressions of the rules, each with what its annotations show."""
    return re.split(r"- alert: ", RULES.read_text())[1:]


def panels() -> list[dict[str, Any]]:
    """The panels of the board, rows of them included."""
    board = json.loads(BOARD.read_text())
    return list(board["panels"])


def board_expressions() -> list[str]:
    """The expressions of the board, each with its legend."""
    return [
        f"{target['expr']} {target['legendFormat']}"
        for panel in panels()
        for target in panel.get("targets", ())
    ]


def strange(expression: str) -> list[str]:
    """What an expression uses that no server has."""
    found, labels = [], set(OF_SCRAPES)
    for name, selected in METRIC.findall(expression):
        family = FAMILIES.get(name) or FAMILIES.get(re.sub(r"_(bucket|sum|count)$", "", name))
        if family is None:
            found.append(name)
            continue
        if (name not in FAMILIES) != (family.kind == "histogram"):
            found.append(f"{name} of a {family.kind}")
        labels |= {*family.labels}
        known = {*family.labels, *OF_SCRAPES}
        found += [f"{name} by {it}" for it in LABEL.findall(selected) if it not in known]
    used = [it.strip() for group in BY.findall(expression) for it in group.split(",")]
    used += LEGEND.findall(expression)
    return found + [f"label {it}" for it in used if it not in labels]


@pytest.mark.parametrize("expression", rule_expressions(), ids=lambda it: it.split()[0])
def test_a_rule_uses_metrics_that_a_server_has(expression: str) -> None:
    """An alert over a metric that nobody has never fires."""
    assert strange(expression) == []


def test_the_board_uses_metrics_that_a_server_has() -> None:
    """A panel stays empty."""
    assert [it for expression in board_expressions() for it in strange(expression)] == []


def test_the_board_shows_every_metric() -> None:
    """A metric that nobody sees is counted for nothing."""
    shown = {
        re.sub(r"_(bucket|sum|count)$", "", name) if name not in FAMILIES else name
        for expression in board_expressions()
        for name, _ in METRIC.findall(expression)
    }
    assert FAMILIES.keys() - shown == set()


def test_what_the_checks_look_for_is_found() -> None:
    """A check that finds nothing would pass on anything."""
    assert strange("rate(forebay_nothing_total[5m])") == ["forebay_nothing_total"]
    assert strange('forebay_workers{cause="x"}') == ["forebay_workers by cause"]
    assert strange("sum by (cause) (forebay_workers)") == ["label cause"]
    assert strange("forebay_request_run_seconds") == ["forebay_request_run_seconds of a histogram"]
    assert strange("forebay_workers {{name}}") == ["label name"]


def test_panels_of_the_board_have_places_of_their_own() -> None:
    """One panel hides another."""
    taken: dict[tuple[int, int], str] = {}
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
                assert x < 24


def test_every_panel_says_what_it_shows_from_the_chosen_source() -> None:
    """A board that names a data source of its author shows nothing to others."""
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert 'job=~"$job", instance=~"$instance"' in target["expr"]


@pytest.mark.needs("promtool")
def test_promtool_takes_the_rules() -> None:
    """Prometheus does not start with rules that it cannot read."""
    command = ["promtool", "check", "rules", "--lint=all", str(RULES)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rule_expressions())} rules found" in checked.stdout
