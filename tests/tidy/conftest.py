"""Say after the tests which files are worth a second thought."""

from __future__ import annotations

import pytest

from tests.tidy.test_lengths import lines
from tests.tidy.tree import files, name, text

FILE_LINES_THINK_AGAIN = 500


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the files over 500 lines, without failing for them."""
    for path in files(".py", ".rs"):
        if lines(text(path)) > FILE_LINES_THINK_AGAIN:
            terminalreporter.write_line(
                f"think again: {name(path)} has {lines(text(path))} lines"
                f" (aim below {FILE_LINES_THINK_AGAIN})",
                yellow=True,
            )
