"""A disk that another program fills while requests run: what was accepted ends all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import BrokenError
from forebay.executor.client.client import Client
from tests.executor.client_fixtures import client_of_serving, serving, small_disk
from tests.executor.serving import Serving, until

__all__ = ["client_of_serving", "serving"]

APP = """
import time
from pathlib import Path

import forebay

app = forebay.App("disk")


@app.request(lane="short")
def waiting(gate: str) -> str:
    while not Path(gate).exists():
        time.sleep(0.01)
    return "returned"
"""
# What the log has room for already is accepted; then it has to grow.
MANY = 10_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Where the state directory is."""
    with small_disk(tmp_path, "16m") as state:
        yield state


def fill(disk: Path) -> Path:
    """Take all that is left of it."""
    ballast = disk / "ballast"
    dd = ["dd", "if=/dev/zero", f"of={ballast}", "bs=4k", "status=none"]
    assert "No space left" in subprocess.run(dd, capture_output=True, text=True, check=False).stderr
    assert os.statvfs(disk).f_bavail == 0
    return ballast


def test_what_was_accepted_ends_on_a_full_disk(
    disk: Path, serving: Serving, client: Client
) -> None:
    """Its result is told, a signal ends the server at once, and the next server has the end."""
    gate = serving.file.parent / "gate"
    first = client.submit("waiting", gate=str(gate))
    until(lambda: first.status() == "running")
    fill(disk)
    held = [first.id]
    with pytest.raises(BrokenError, match="free some of the disk of the state directory"):
        held.extend(client.submit("waiting", gate=str(gate)).id for _ in range(MANY))
    gate.touch()
    assert {client.get(id_).result(timeout=20) for id_ in held} == {"returned"}
    os.kill(serving.pid, signal.SIGTERM)
    serving.ended(timeout=10)
    with Client(f"unix://{serving.start().socket}", timeout=20.0) as another:
        assert {another.get(id_).result(timeout=20) for id_ in held} == {"returned"}


def test_a_prune_makes_room_on_a_full_disk(disk: Path, serving: Serving, client: Client) -> None:
    """And submissions are taken again once there is some."""
    gate = serving.file.parent / "gate"
    gate.touch()
    assert client.run("waiting", gate=str(gate)) == "returned"
    ballast = fill(disk)
    prune = [sys.executable, "-m", "forebay.cli", "prune", "--all", "--app", str(serving.file)]
    pruned = subprocess.run(
        prune, env=serving.environment, capture_output=True, text=True, check=False
    )
    assert (pruned.returncode, pruned.stderr) == (0, "")
    assert pruned.stdout.startswith("1 request")
    ballast.unlink()

    def is_taken() -> bool:
        try:
            return bool(client.run("waiting", gate=str(gate)) == "returned")
        except BrokenError:
            return False

    until(is_taken)
