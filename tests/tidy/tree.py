"""The files of the repository, as the tidy tests read them."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ("memory", "transport", "rpc", "pool", "executor", "tensor", "blockio")
SYSTEMS = frozenset({*CORE, "gateway", "cli", "dask", "gym", "testing", "contrib"})
VENDORED = ROOT / "tests/vendored"
"""Unmodified files of others, which none of our rules can hold for."""
CRATES_BESIDE_SYSTEMS = frozenset({"base", "verbs", "python"})
"""The ground floor, the fabric of tensor that needs a device, the binding."""


@functools.cache
def files(*suffixes: str) -> tuple[Path, ...]:
    """Files of the checkout with one of the suffixes: tracked, or new and not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths = (ROOT / name for name in listing.split("\0") if name)
    ours = (path for path in paths if not path.is_relative_to(VENDORED))
    return tuple(path for path in ours if path.suffix in suffixes and path.is_file())


def name(path: Path) -> str:
    """The path as a message shows it."""
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    """The dotted name under which a file of this repository is imported."""
    parts = Path(name(path)).with_suffix("").parts
    if parts[:2] == ("clients", "python"):
        parts = parts[2:]
    parts = parts[1:] if parts[0] == "python" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def text(path: Path) -> str:
    """The content of a file."""
    return path.read_text(encoding="utf-8")


@functools.cache
def cargo_metadata() -> dict[str, Any]:
    """What cargo knows about the workspace and everything it is built from here."""
    host = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    triple = host.partition("host: ")[2].split()[0]
    command = ["cargo", "metadata", "--locked", "--format-version=1"]
    command += ["--filter-platform", triple]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    metadata: dict[str, Any] = json.loads(result.stdout)
    return metadata


def complain(problems: list[str], *, next_step: str) -> None:
    """Fail with one line per problem, then what to do about it."""
    if problems:
        listing = "\n  ".join(sorted(problems))
        pytest.fail(f"{len(problems)} found:\n  {listing}\n{next_step}", pytrace=False)
