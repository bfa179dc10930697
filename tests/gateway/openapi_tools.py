"""Programs of others that read descriptions in OpenAPI, in an environment of their own.

It is apart from that of the tests: they bring a hundred packages, and a plugin of pytest.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tool(name: str) -> str:
    """The path of a program; skips the test where it is not installed."""
    found = Path(os.environ.get("OPENAPI_VENV", ROOT / ".venv-openapi")) / "bin" / name
    if not found.exists():
        pytest.skip(f"{name} is not in .venv-openapi: make test")
    return os.fspath(found)


def run(command: list[str], cwd: Path, timeout: float, **settings: str) -> str:
    """The output of a program that must succeed.

    Its environment is the user's with `settings`, without what would lead it to our package.
    """
    environment = {name: it for name, it in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    return done.stdout
