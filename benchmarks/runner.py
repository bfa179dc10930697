"""Running of contestants as child processes, of which nothing is left afterwards.

Each child leads a session of its own, so that its group can be ended as a whole.
A child may start processes that leave the group (a keeper does); the harness is a subreaper, so
they come to it when the child has ended, get `LINGER_S` to end by themselves, and are ended then.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import forebay
from benchmarks import child as child_script
from benchmarks import processes
from benchmarks.claim import OWN, Contestant
from benchmarks.peers import MISSING

ROOT = Path(__file__).resolve().parents[1]
CHILD = Path(child_script.__file__)
FOREBAY = Path(forebay.__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venv-bench"
ROUND_TIMEOUT_S = 900.0
LINGER_S = 2.0
POLL_S = 0.01
MISSING_PACKAGE = "ModuleNotFoundError: "
PR_SET_CHILD_SUBREAPER = 36


class ContestantError(Exception):
    """A contestant could not run; the message is the reason that its row shows."""


def adopt_orphans() -> None:
    """Make this process the parent of what its children leave behind."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def interpreter(environment: str) -> Path:
    """The Python of an environment."""
    if environment == OWN:
        return Path(sys.executable)
    missing = ENVIRONMENTS / environment / MISSING
    if missing.exists():
        raise ContestantError(
            f"environment '{environment}' does not install: {missing.read_text()}"
        )
    path = ENVIRONMENTS / environment / "bin" / "python"
    if not path.exists():
        raise ContestantError(f"environment '{environment}' is not there: make bench-setup")
    return path


def run_round(contestant: Contestant, *, quick: bool, wanted: Sequence[str] = ()) -> dict[str, Any]:
    """Run one round in a fresh process.

    Args:
        contestant: who runs.
        quick: whether with its options for a quick run.
        wanted: the figures that it shall measure, where it asks for them.

    Returns:
        What the child reported: `figures` and `versions`.

    Raises:
        ContestantError: it could not start, failed, or took longer than `ROUND_TIMEOUT_S`.
    """
    asked = {"wanted": list(wanted)} if contestant.asks else {}
    options = json.dumps(contestant.options_for(quick=quick) | asked)
    python = str(interpreter(contestant.environment))
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as output, open(read_end, encoding="utf-8") as stream:
        try:
            child = subprocess.Popen(
                [
                    *(python, *contestant.flags, "-P", str(CHILD)),
                    *(str(write_end), contestant.function, options),
                ],
                cwd=ROOT,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[write_end],
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        try:
            report = _read_report(stream, contestant)
            status = child.wait(timeout=LINGER_S * 5)
        except subprocess.TimeoutExpired:
            status = None  # it has reported; its ending is not what is measured
        finally:
            end(child)
        if not report:
            raise ContestantError(f"ended with status {status}: {_reason(output)}")
    result: dict[str, Any] = json.loads(report)
    return result


def _read_report(stream: IO[str], contestant: Contestant) -> str:
    ready, _, _ = select.select([stream], [], [], ROUND_TIMEOUT_S)
    if not ready:
        raise ContestantError(f"{contestant.name} took longer than {ROUND_TIMEOUT_S:.0f} s")
    return stream.readline()


def _environment() -> dict[str, str]:
    # One thread of numeric libraries for everyone: a pool of them disturbs the other side.
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # Forebay too: ours runs in a peer's environment where both import what only that one has.
    path = os.pathsep.join(map(str, (ROOT, FOREBAY)))
    environment = os.environ | threads | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    # A fresh interpreter must find its modules compiled, as an installed program does.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _reason(output: IO[bytes]) -> str:
    """The last line of what it said; where a package is missing, what to type besides."""
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()
    if not lines:
        return "it said nothing"
    return f"{lines[-1]}{': make bench-setup' if lines[-1].startswith(MISSING_PACKAGE) else ''}"


def end(child: subprocess.Popen[bytes]) -> None:
    """End the child, its group, and what left the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + LINGER_S
    while _reap_strays():
        if time.monotonic() > deadline:
            strays = processes.descendants(os.getpid())
            print(f"left behind by the contestant, ended now: {strays}", file=sys.stderr)
            for pid in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def _reap_strays() -> bool:
    """Collect adopted children that have ended; whether any are left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False
