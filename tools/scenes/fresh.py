"""A fresh environment: the wheel, what an application imports, and the application's files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Fresh:
    """A directory in which nothing of this clone is but copies.

    Attributes:
        home: with a short path, for state and sockets.
    """

    home: Path

    @property
    def programs(self) -> Path:
        """Where `forebay` and `python` are."""
        return self.home / "env" / "bin"


def install(home: Path, wheel: Path, packages: Sequence[str], examples: Sequence[str]) -> Fresh:
    """Make the environment, as a newcomer does.

    Args:
        home: an empty directory.
        wheel: of forebay.
        packages: that the applications import besides.
        examples: folders of the examples that are copied.

    Raises:
        subprocess.CalledProcessError: pip could not; what it said is on stderr.
    """
    fresh = Fresh(home)
    subprocess.run([sys.executable, "-m", "venv", home / "env"], check=True)
    pip = (fresh.programs / "python", "-m", "pip", "--disable-pip-version-check", "install")
    subprocess.run([*pip, "--quiet", "--only-binary", ":all:", wheel, *packages], check=True)
    for example in examples:
        copy = home / "examples" / example
        shutil.copytree(
            ROOT / "examples" / example, copy, ignore=shutil.ignore_patterns("__pycache__")
        )
    return fresh


def built_wheel() -> Path:
    """The newest wheel that `make wheel` has built.

    Raises:
        FileNotFoundError: there is none.
    """
    wheels = sorted((ROOT / "dist").glob("forebay-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise FileNotFoundError("no wheel in dist/: make wheel")
    return wheels[-1]
