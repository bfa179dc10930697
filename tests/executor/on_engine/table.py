"""Tests that do not run with `--engine`: the table, and what share of a run it is.

`python -m tests.executor.on_engine.table` writes it, as its page in docs/concepts/executor has it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.skip_list import TESTS, Allowed

EXECUTOR: Final = TESTS / "executor"
TABLE: Final = Path(__file__).with_name("skips.toml")
SHARE_MAX: Final = 0.20
PREFIX: Final = "on an engine: "
"""Begins the reason of each test that is skipped by the table."""


@dataclass(frozen=True, slots=True)
class Row:
    """Tests that concern one machine.

    Attributes:
        tests: files below tests/executor, or tests of them: "a/test_b.py::test_c".
        reason: why they mean nothing, or something else, where workers are on nodes.
        instead: what shows the same of an engine, if something does.
    """

    tests: tuple[str, ...]
    reason: str
    instead: str = ""

    @property
    def shown(self) -> str:
        """The reason with which they are skipped."""
        return PREFIX + self.reason

    def has(self, path: Path, function: str) -> bool:
        """Whether a test function of a file is one of them."""
        if not path.is_relative_to(EXECUTOR):
            return False
        file = path.relative_to(EXECUTOR).as_posix()
        return file in self.tests or f"{file}::{function}" in self.tests

    def allowed(self) -> Allowed:
        """The same as a row of the list of skips."""
        files = sorted({one.partition("::")[0] for one in self.tests})
        reason = re.compile(f"^{re.escape(self.shown)}$")
        return Allowed(tuple(f"{EXECUTOR.name}/{file}" for file in files), reason)


def rows() -> list[Row]:
    """What the table has."""
    told = tomllib.loads(TABLE.read_text()).get("skip", [])
    return [Row(tuple(row["tests"]), row["reason"], row.get("instead", "")) for row in told]


def skip(items: list[pytest.Item]) -> None:
    """Have the tests of the table skipped."""
    table = rows()
    for item in items:
        function = getattr(item, "originalname", item.name)
        for row in table:
            if row.has(item.path, function):
                item.add_marker(pytest.mark.skip(reason=row.shown))


@dataclass(eq=False)
class Share:
    """How many tests of a run the table has skipped; of all tests that is limited."""

    is_held: bool
    """Whether the run is of all tests."""

    tests: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is counted as it begins."""
        if report.when != "setup":
            return
        self.tests.add(report.nodeid)
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if reason.startswith(PREFIX):
                self.skipped[reason.removeprefix(PREFIX)] += 1

    @property
    def share(self) -> float:
        """Of the tests."""
        return self.skipped.total() / max(1, len(self.tests))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The status that make sees."""
        if self.is_held and self.share > SHARE_MAX and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many, and why."""
        told = terminalreporter.write_line
        told(
            f"{self.skipped.total()} of {len(self.tests)} tests ({self.share:.1%}) are skipped by"
            f" {TABLE.relative_to(TESTS.parent)}"
        )
        for reason, count in self.skipped.most_common():
            told(f"{count:5} {reason}")
        if self.is_held and self.share > SHARE_MAX:
            told(f"FAILED more than {SHARE_MAX:.0%} are skipped", red=True)


def rendered() -> str:
    """The table as Markdown."""
    lines = ["| tests | why they are skipped | what shows it of an engine |", "|---|---|---|"]
    for row in rows():
        names = ", ".join(f"`{one}`" for one in row.tests)
        instead = f"`{row.instead}`" if row.instead else "nothing"
        lines.append(f"| {names} | {row.reason} | {instead} |")
    return "\n".join(lines) + "\n"


def selects_everything(config: Any) -> bool:
    """Whether a run is of all tests of tests/executor."""
    paths = {Path(str(config.invocation_params.dir), one).resolve() for one in config.args}
    return paths == {EXECUTOR} and not config.option.keyword and not config.option.markexpr


if __name__ == "__main__":
    sys.stdout.write(rendered())
