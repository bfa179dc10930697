"""A disk that another program fills while requests run: what was accepted ends all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from forebay.errors import BrokenError, StaleError
from forebay.executor.client.client import Client
from forebay.executor.client.options import Submit
from tests.executor.client_fixtures import client_of_serving, fill, serving, small_disk
from tests.executor.serving import Serving, until

__all__ = ["client_of_serving", "serving"]

APP = """
import time
from collections.abc import Iterator
from pathlib import Path

import forebay

app = forebay.App("disk")


@app.request(lane="short")
def waiting(gate: str) -> str:
    while not Path(gate).exists():
        time.sleep(0.01)
    return "returned"


@app.request(retries=1000, backoff=0.05, max_backoff=0.05)
def yields(gate: str, first: int) -> Iterator[bytes]:
    yield from [b"early"] * first
    while not Path(gate).exists():
        time.sleep(0.01)
    yield bytes(3_000_000)
"""
# What the log has room for already is accepted; then it has to grow.
MANY = 10_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Where the state directory is."""
    with small_disk(tmp_path, "16m") as state:
        yield state


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


@pytest.mark.parametrize(("first", "is_begun"), [(0, False), (0, True), (1, True)])
def test_items_are_kept_again_once_there_is_room(
    disk: Path, serving: Serving, client: Client, first: int, is_begun: bool
) -> None:
    """Whether their file is made on a full disk, or is there and has no room for the next item.

    The generator ends with what is full; its next runs begin new epochs, of which its readers hear.
    """
    gate = serving.file.parent / "gate"
    options = None if is_begun else Submit(delay=1.0)
    request = client.submit("yields", gate=str(gate), first=first, options=options)
    items = request.items()
    if is_begun:
        until(lambda: request.show()["items"])
        assert list(islice(items, first)) == [b"early"] * first
    ballast = fill(disk)
    gate.touch()
    # Not `attempts`, which is of the store, and that cannot write now.
    assert until(lambda: "run 2 failed" in str(request.why()))
    ballast.unlink()
    seen: list[bytes] = []
    while True:
        try:
            seen.extend(items)
            break
        except StaleError:
            seen.clear()
    assert seen == [b"early"] * first + [bytes(3_000_000)]
    assert request.show()["items"]["count"] == first + 1
