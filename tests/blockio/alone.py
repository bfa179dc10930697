"""A function of a test module, run in a process of its own: for what cannot be undone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEADLINE_S = 15

CALL = """
import importlib, sys
module, name, *arguments = sys.argv[1:]
getattr(importlib.import_module(module), name)(*arguments)
"""


def alone(act: Callable[..., None], *arguments: object) -> None:
    """Call it with its arguments as text, and fail with what it wrote if it fails."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CALL, *command(act), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}{done.stderr}"


def command(act: Callable[..., None]) -> list[str]:
    """What names the function in another process."""
    return [act.__module__, act.__name__]
