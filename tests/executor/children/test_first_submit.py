"""The first child of a run, while the disk is full or the server is told to end."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from forebay.errors import BrokenError
from forebay.executor import Client, Request
from tests.executor.client_fixtures import fill, small_disk
from tests.executor.serving import Serving, until

APP = """
import asyncio, pathlib, time
import forebay

app = forebay.App("first")

@app.request()
def child(folder: str, number: int) -> int:
    with open(pathlib.Path(folder) / "runs", "a") as file:
        file.write(f"{number}\\n")
    return number

@app.request()
def fills(blob: bytes) -> None:
    pass

@app.request()
def insists(ctx: forebay.Context, folder: str) -> int:
    path = began(folder, 0)
    while not (path / "gate").exists():
        time.sleep(0.001)
    while True:
        try:
            return ctx.submit(child, folder, 0).result()
        except forebay.BrokenError as error:
            (path / "refused").write_text(str(error))
            time.sleep(0.02)

@app.request(retries=1000, backoff=0.05, max_backoff=0.05)
def begins(ctx: forebay.Context, folder: str, number: int) -> int:
    path = began(folder, number)
    while not (path / "gate").exists():
        time.sleep(0.001)
    ctx.submit(child, folder, number).exception()
    return number

@app.request(retries=3, backoff=0.01)
async def begins_async(ctx: forebay.Context, folder: str, number: int) -> int:
    path = began(folder, number)
    while not (path / "gate").exists():
        await asyncio.sleep(0.001)
    submitted = await ctx.submit(child, folder, number)
    await submitted.exception()
    return number

def began(folder: str, number: int) -> pathlib.Path:
    path = pathlib.Path(folder)
    (path / f"{number}.began").touch()
    return path
"""
PARENTS = 8
SUBMISSIONS = 10_000


def have_begun(folder: Path, count: int) -> None:
    """Wait until so many parents are at the gate."""
    assert until(lambda: len(list(folder.glob("*.began"))) == count)


def submit_many(client: Client) -> None:
    """Submit more than the log has room for."""
    for _ in range(SUBMISSIONS):
        client.submit("fills", blob=bytes(1000))


def runs(folder: Path) -> Counter[str]:
    """How often the child of each number has run."""
    path = folder / "runs"
    return Counter(path.read_text().split() if path.exists() else [])


@pytest.mark.parametrize("name", ["insists", "begins"])
def test_a_first_child_that_the_disk_has_no_room_for_is_submitted_once_there_is_some(
    tmp_path: Path, name: str
) -> None:
    """The parent hears why, in this run or by its end, and no child is there that it was refused.

    It loads the client with that submission, and opens its connection, while there is no room.
    """
    with (
        small_disk(tmp_path, "16m") as disk,
        Serving(tmp_path, APP) as serving,
        Client(f"unix://{serving.socket}", timeout=20.0) as client,
    ):
        options = {"folder": str(tmp_path)} | ({} if name == "insists" else {"number": 0})
        parent = client.submit(name, **options)
        have_begun(tmp_path, 1)
        ballast = fill(disk)
        with pytest.raises(BrokenError, match="free some of the disk"):
            submit_many(client)
        (tmp_path / "gate").touch()
        if name == "insists":
            assert until(lambda: (tmp_path / "refused").exists())
            assert (
                "free some of the disk of the state directory" in (tmp_path / "refused").read_text()
            )
        else:
            assert until(lambda: parent.show()["attempts"] > 1)
        assert client.list(parent=parent.id) == []
        ballast.unlink()
        assert parent.result(timeout=30) == 0
        assert [row["status"] for row in client.list(parent=parent.id)] == ["succeeded"]
        assert runs(tmp_path) == {"0": 1}


def ended_once(client: Client, parents: list[Request], folder: Path, *, all_run: bool) -> None:
    """Each parent has ended well and has one child, which ran once, or not where it was killed."""
    for number, parent in enumerate(parents):
        assert parent.result(timeout=60) == number
        (child,) = client.list(parent=parent.id)
        assert child["name"] == "child"
    told = runs(folder)
    assert set(told) <= {str(number) for number in range(len(parents))}
    assert set(told.values()) <= {1}
    if all_run:
        assert len(told) == len(parents)


@pytest.mark.parametrize("grace", [30.0, 0.01])
def test_a_server_that_ends_meanwhile_loses_no_child_and_doubles_none(
    tmp_path: Path, grace: float
) -> None:
    """It lets what runs submit its children and end; where its time is short, the next one does."""
    with (
        Serving(tmp_path, APP, drain_grace=grace) as serving,
        Client(f"unix://{serving.socket}", timeout=60.0) as client,
    ):
        for delay in (0.0, 0.003, 0.015):
            folder = tmp_path / f"{delay}"
            folder.mkdir()
            parents = [
                client.submit("begins_async" if number % 2 else "begins", str(folder), number)
                for number in range(PARENTS)
            ]
            have_begun(folder, PARENTS)
            (folder / "gate").touch()
            time.sleep(delay)  # into another part of the submission
            os.kill(serving.pid, signal.SIGTERM)
            assert serving.ended() == signal.SIGTERM
            serving.start()
            ended_once(client, parents, folder, all_run=grace > 1)
