"""Running programs that use a pool, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(
    *arguments: str | Path, cwd: Path, stdin: str | None = None, timeout: float = 20
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with arguments, in a directory; never waits longer than `timeout`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(cwd)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def write(path: Path, program: str) -> Path:
    """Write a program given as an indented text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(program))
    return path
