"""Libraries in C that tests preload into a process: they count, or change what it is told."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["compiled"]


def compiled(source: Path, folder: Path) -> Path:
    """The library of this source, for LD_PRELOAD; a test that calls this `needs("gcc")`."""
    library = folder / f"{source.stem}.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library
