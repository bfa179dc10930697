"""The CPython interpreters of this machine that a wheel should work under."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

MINORS = (11, 12, 13, 14)
PROBE = "import platform, venv, ensurepip; print(platform.python_implementation())"


def candidates(minor: int) -> list[Path]:
    """Where a CPython 3.`minor` may be: under pyenv, then on PATH."""
    folder = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    pattern = f"{glob.escape(str(folder))}/3.{minor}.*/bin/python3.{minor}"
    # Unlike `Path.glob`, it takes a folder that this user may not enter for an empty one.
    found = sorted(map(Path, glob.glob(pattern)), reverse=True)
    on_path = shutil.which(f"python3.{minor}")
    return [*found, *([Path(on_path)] if on_path else [])]


def find(minor: int) -> Path | None:
    """The first candidate that runs and can make virtual environments."""
    for candidate in candidates(minor):
        probe = subprocess.run([candidate, "-c", PROBE], capture_output=True, text=True)
        if probe.returncode == 0 and probe.stdout.strip() == "CPython":
            return candidate
    return None
