"""What the pages show runs, and prints what they say that it prints."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROCESS = re.compile(r"process \d+")
TIMEOUT_S = 50


NAMED_FILE = re.compile(r"`((?:crates|python|examples)/[\w./]+)`")


class Program(NamedTuple):
    """A `python` block; its output is the `text` block that comes next, where one does."""

    place: str
    source: str
    output: str | None


def programs() -> Iterator[Program]:
    """Every program that a page shows."""
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text()
        blocks = list(BLOCK.finditer(text))
        for block, following in itertools.zip_longest(blocks, blocks[1:]):
            if block[1] == "python":
                line = text.count("\n", 0, block.start()) + 1
                told = following[2] if following and following[1] == "text" else None
                yield Program(f"{page.relative_to(ROOT)}:{line}", block[2], told)


def cases() -> list[Any]:
    """The programs as parameters; one that runs gcc is skipped where there is none."""
    return [
        pytest.param(
            program,
            id=program.place,
            marks=[pytest.mark.needs("gcc")] if "gcc" in program.source else [],
        )
        for program in programs()
    ]


@pytest.mark.parametrize("program", cases())
def test_a_program_of_the_docs_runs(program: Program, tmp_path: Path) -> None:
    """A newcomer who copies a program into a file gets what the page says, process ids apart."""
    script = tmp_path / "program.py"
    script.write_text(program.source)
    # Some look for what is left in the directory of temporary files, where other tests have theirs.
    with (
        tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as temporary,
        subprocess.Popen(
            [sys.executable, script],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
                ),
                "FOREBAY_STATE_DIR": str(tmp_path / "state"),
                "TMPDIR": temporary,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            written, complaints = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, f"{program.place}:\n{complaints}"
    if program.output is not None:
        assert PROCESS.sub("process N", written) == PROCESS.sub("process N", program.output)


def test_programs_are_found() -> None:
    """A rule that finds nothing would let every page rot."""
    pages = {program.place.partition(":")[0] for program in programs()}
    assert {"README.md", "docs/tutorial.md", "docs/concepts/memory.md"} <= pages


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/decisions.md"])
def test_files_that_the_architecture_names_are_there(page: str) -> None:
    """A reader who follows a call through the tree finds each file."""
    named = NAMED_FILE.findall((ROOT / page).read_text())
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []
