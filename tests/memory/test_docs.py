"""The page about memory: what it shows runs."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "memory.md"


def test_the_program_of_the_page_runs() -> None:
    """A newcomer who pastes it must not get an error."""
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 1
    exec(compile(programs[0], str(PAGE), "exec"), {"__name__": "page"})
