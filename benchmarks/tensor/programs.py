"""Programs of our crates' examples: built once for a run, told to its contestants' processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from benchmarks.runner import ROOT

VARIABLE = "BENCH_TENSOR_PROGRAMS"
TRAFFIC: Final = "parameter_traffic"
COST: Final = "arena_cost"
CRATES = {TRAFFIC: "forebay-tensor", COST: "forebay-memory"}


def build(names: Iterable[str]) -> None:
    """Build programs, and have the processes that are started from now on know of them.

    One that cannot be built is told with the reason.
    """
    os.environ[VARIABLE] = json.dumps({name: _built(name) for name in names})


def forget() -> None:
    """Tell no further process."""
    os.environ.pop(VARIABLE, None)


def run(name: str, *arguments: str) -> dict[str, Any]:
    """Run a program, and read the line of JSON that it prints.

    Raises:
        FileNotFoundError: it was not built; the message says why.
        RuntimeError: it has failed.
    """
    told: dict[str, str] = json.loads(os.environ[VARIABLE])[name]
    if "missing" in told:
        raise FileNotFoundError(f"{name} is not built: {told['missing']}")
    command = [told["path"], *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        raise RuntimeError(
            f"{name}: {(ended.stderr.strip().splitlines() or ['it said nothing'])[0]}"
        )
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def _built(name: str) -> dict[str, str]:
    cargo = shutil.which("cargo")
    if cargo is None:
        return {"missing": "cargo is not on PATH"}
    print(f"building {name}", file=sys.stderr, flush=True)
    command = [cargo, "build", "--release", "--locked", "--package", CRATES[name]]
    command += ["--example", name, "--message-format", "json"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.stderr.write(ended.stderr)
        return {"missing": (ended.stderr.strip().splitlines() or ["cargo said nothing"])[-1]}
    for line in ended.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            return {"path": str(Path(message["executable"]))}
    return {"missing": "cargo built no program of this name"}
