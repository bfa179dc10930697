"""Ours made known in an environment where it is not installed.

The peers' environments import Forebay from the checkout. What `distributed` looks for, and a server
for its engine, is an entry point of an installed package, so those of pyproject.toml are put in a
folder that the contestant and the processes it starts find on their path.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def announce() -> None:
    """Let this process and those it starts find our entry points."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    groups: dict[str, dict[str, str]] = project.get("entry-points", {})
    folder = tempfile.mkdtemp(prefix="forebay-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    information = Path(folder) / "forebay_benchmark-0.dist-info"
    information.mkdir()
    lines = "\n".join(
        f"[{group}]\n" + "\n".join(f"{name} = {target}" for name, target in points.items())
        for group, points in groups.items()
    )
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: forebay-benchmark\nVersion: 0\n"
    )
    (information / "entry_points.txt").write_text(f"{lines}\n")
    sys.path.append(folder)
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (path, folder)))
