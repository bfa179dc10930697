"""Fail a run in which a test was skipped for a reason that is not in skips.toml."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LIST = TESTS / "skips.toml"


@dataclass(frozen=True, slots=True)
class Allowed:
    """A reason for which some tests may be skipped.

    Attributes:
        patterns: of paths below the folder of tests.
        reason: what is searched in the reason that a test gives.
    """

    patterns: tuple[str, ...]
    reason: re.Pattern[str]

    def matches(self, path: str, reason: str) -> bool:
        """Whether a test of this file may be skipped so."""
        return any(fnmatch(path, one) for one in self.patterns) and bool(self.reason.search(reason))


def alternatives(pattern: str) -> tuple[str, ...]:
    """`{a,b}/c` is `a/c` and `b/c`, as a shell has it."""
    found = re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern)
    if found is None:
        return (pattern,)
    before, names, after = found.groups()
    return tuple(f"{before}{name}{after}" for name in names.split(","))


def allowed() -> list[Allowed]:
    """What the list has."""
    rows = tomllib.loads(LIST.read_text())["skip"]
    return [Allowed(alternatives(row["tests"]), re.compile(row["reason"])) for row in rows]


@dataclass(eq=False)  # a plugin is told from others by what it is, not by what it has
class SkipList:
    """Of one run: what was skipped without being listed. Registered in the process that reports."""

    listed: list[Allowed] = field(default_factory=allowed)
    unlisted: list[str] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test, or what it is set up by."""
        self._look(report, report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A whole module."""
        self._look(report, report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The status that make sees."""
        if self.unlisted and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which, and what to do."""
        for told in self.unlisted:
            terminalreporter.write_line(f"FAILED {told}", red=True)
        if self.unlisted:
            terminalreporter.write_line(
                f"{len(self.unlisted)} skipped for reasons that are not in tests/{LIST.name}: "
                "make them run, or add a row that says what is lost"
            )

    def _look(self, report: pytest.TestReport | pytest.CollectReport, nodeid: str) -> None:
        if (
            not report.skipped
            or hasattr(report, "wasxfail")
            or not isinstance(report.longrepr, tuple)
        ):
            return
        reason = report.longrepr[2].removeprefix("Skipped: ")
        path = nodeid.partition("::")[0].removeprefix(f"{TESTS.name}/")
        if not any(one.matches(path, reason) for one in self.listed):
            self.unlisted.append(f"{nodeid}: skipped: {reason}")
