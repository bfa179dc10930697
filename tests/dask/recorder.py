"""A pytest plugin for distributed's suite: it records each test as it ends, and can leave out some.

What a process that dies has recorded until then is kept.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.dask.record import FAILED, PASSED, SKIPPED, SLOW, STARTED, Line, Record

REASON_MAX = 3000
"""Characters kept of what pytest says of a failure, from the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the runner says to it."""
    group = parser.getgroup("record of a suite")
    group.addoption("--record", type=Path, required=True, help="where lines are appended")
    group.addoption("--comms", required=True, help="what the lines say the tests ran over")
    group.addoption("--leave-out", type=Path, help="a JSON list of tests that are not run")


def pytest_configure(config: pytest.Config) -> None:
    """Record the run; a marker of a plugin that need not be installed is no error."""
    config.addinivalue_line("markers", "flaky: may be run again by pytest-rerunfailures")
    config.pluginmanager.register(Recorder(config))


class Recorder:
    """Writes a line when a test begins, and another when all its phases are over."""

    def __init__(self, config: pytest.Config) -> None:
        self._record = Record(config.getoption("record"))
        self._comms: str = config.getoption("comms")
        left_out: Path | None = config.getoption("leave_out")
        self._left_out = set(json.loads(left_out.read_text())) if left_out else set()
        self._phases: list[pytest.TestReport] = []

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        dropped = [item for item in items if item.nodeid in self._left_out]
        items[:] = [item for item in items if item.nodeid not in self._left_out]
        config.hook.pytest_deselected(items=dropped)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported, or that skips itself, counts as one test."""
        if not report.passed and report.nodeid not in self._left_out:
            self._add(report.nodeid, [report])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._phases = []
        self._record.add(Line(nodeid, self._comms, STARTED))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._phases.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._add(nodeid, self._phases)

    def _add(
        self, nodeid: str, reports: list[pytest.TestReport] | list[pytest.CollectReport]
    ) -> None:
        seconds = sum(getattr(report, "duration", 0.0) for report in reports)
        outcome, reason = PASSED, ""
        for report in reports:
            if report.failed:
                outcome, reason = FAILED, report.longreprtext[-REASON_MAX:]
            elif report.skipped and outcome == PASSED:
                outcome, reason = SKIPPED, why_skipped(report)
        if outcome == SKIPPED and "--runslow" in reason:
            outcome = SLOW
        self._record.add(Line(nodeid, self._comms, outcome, round(seconds, 3), reason))


def why_skipped(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason of a skip, or of a failure that is expected."""
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    found = report.longrepr
    return found[2] if isinstance(found, tuple) else str(found)
