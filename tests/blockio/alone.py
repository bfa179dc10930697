"""A function of a test module, run in a process of its own: for what cannot be undone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30

CALL = """
import importlib, sys
module, name, *arguments = sys.argv[1:]
getattr(importlib.import_module(module), name)(*arguments)
"""


def alone(act: Callable[..., None], *arguments: object, prefix: Sequence[str] = ()) -> None:
    """Call it with its arguments as text, and fail with what it wrote if it fails.

    Args:
        act: a function at the top of a test module.
        arguments: as text.
        prefix: of the command, such as `unshare`.
    """
    done = subprocess.run(
        [*prefix, sys.executable, "-W", "error", "-c", CALL, *command(act), *map(str, arguments)],
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
