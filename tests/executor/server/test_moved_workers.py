"""Workers that run on under the next server: what reaches them, and what becomes of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import forebay
from forebay.errors import Error
from tests.executor.serving import Serving, until, wait_gone

APP = """
import asyncio, os, time
import forebay

app = forebay.App("moved")

def _wait(path, gate):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b"ran\\n")
    os.close(descriptor)
    while not os.path.exists(gate):
        time.sleep(0.005)

@app.request()
def talk(ctx: forebay.Context, path: str, gate: str, size: int = 0) -> bytes:
    print("before", flush=True)
    bar = ctx.progress(total=2)
    bar.advance()
    _wait(path, gate)
    print("after", flush=True)
    bar.advance()
    while size == 10 and not os.path.exists(gate + "2"):
        time.sleep(0.01)
    return b"x" * size

@app.request()
def closed(ctx: forebay.Context, path: str, gate: str) -> int:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    time.sleep(0.2)  # until the server has seen the end of the pipe
    _wait(path, gate)
    return ctx.attempt

@app.request(timeout="3s")
def limited(ctx: forebay.Context, path: str, gate: str) -> None:
    _wait(path, gate)

@app.request(retries=1, backoff="10ms")
def again(ctx: forebay.Context, path: str, gate: str) -> int:
    _wait(path, gate)
    return ctx.attempt

@app.request(concurrency=1, concurrency_key="account")
def keyed(ctx: forebay.Context, path: str, gate: str, account: str) -> int:
    _wait(path, gate)
    return ctx.attempt

@app.request()
async def nap(ctx: forebay.Context, path: str, gate: str) -> int:
    print("before", flush=True)
    open(path, "a").close()
    while not os.path.exists(gate):
        await asyncio.sleep(0.005)
    print("after", flush=True)
    return os.getpid()

class Tool(forebay.Service):
    def use(self):
        return os.getpid()

@app.request()
def lease(ctx: forebay.Context, path: str, gate: str) -> list[int]:
    with ctx.acquire(Tool) as tool:
        before = tool.use()
        _wait(path, gate)
        with ctx.acquire(Tool) as another:
            return [before, tool.use(), another.use()]

@app.request(lane="short")
def add(a: int, b: int = 2) -> int:
    return a + b
"""

pytestmark = pytest.mark.timeout(120)


class Moved(NamedTuple):
    """A request that went from one server to the next while it ran."""

    client: forebay.Client
    request: forebay.Request
    gate: Path
    old: Serving
    new: Serving

    def worker(self) -> int:
        """The process that runs it."""
        return busy_worker(self.client)


def busy_worker(client: forebay.Client) -> int:
    """The process of the one worker that runs something."""
    (pid,) = (worker["pid"] for worker in client.ask("workers")["workers"] if worker["running"])
    return int(pid)


class Scene:
    """Two servers, one after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ran, self.gate = directory / "ran", directory / "gate"
        self.old = Serving(directory, APP, long_workers=2, max_workers=4)
        self.new: Serving | None = None
        self.client: forebay.Client | None = None

    def moved(self, name: str, **arguments: Any) -> Moved:
        """Submit it, wait until it runs, replace the server."""
        self.old.start()
        client = self.client = forebay.Client(f"unix://{self.old.socket}", start=False)
        given = {"path": str(self.ran), "gate": str(self.gate), **arguments}
        request = client.submit(name, **given)
        until(self.ran.exists)
        self.new = self.old.replace()
        return Moved(client, request, self.gate, self.old, self.new)

    def close(self) -> None:
        """Both end."""
        if self.client is not None:
            self.client.close()
        if self.new is not None:
            self.new.close()
        self.old.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def test_its_output_and_its_progress_go_on(scene: Scene) -> None:
    """What it wrote before and after is one log."""
    moved = scene.moved("talk", size=10)
    moved.gate.touch()
    progress = moved.request.progress()
    while next(progress).done != 2:
        pass
    Path(f"{moved.gate}2").touch()
    assert moved.request.result(timeout=20) == b"x" * 10
    assert "".join(moved.request.logs()) == "before\nafter\n"
    assert moved.old.ended() == 0


@pytest.mark.parametrize("size", [200_000, 3_000_000], ids=["by reference", "a file"])
def test_a_long_result_comes_whole(scene: Scene, size: int) -> None:
    """The first long one of a worker; it has lent nothing yet."""
    moved = scene.moved("talk", size=size)
    moved.gate.touch()
    assert moved.request.result(timeout=20) == b"x" * size
    assert moved.old.ended() == 0


def test_many_of_one_event_loop_go_over_together(scene: Scene) -> None:
    """Their worker takes nothing more, and ends when the last of them has."""
    scene.old.start()
    scene.client = client = forebay.Client(f"unix://{scene.old.socket}", start=False)
    paths = [scene.ran.with_name(f"ran{number}") for number in range(3000)]
    given = {"gate": str(scene.gate)}
    requests = [client.submit("nap", path=str(path), **given) for path in paths]
    until(lambda: all(path.exists() for path in paths))
    scene.new = scene.old.replace()
    late = client.submit("nap", path=str(scene.ran), **given)
    until(scene.ran.exists)
    scene.gate.touch()
    (pid,) = {request.result(timeout=20) for request in requests}
    assert late.result(timeout=20) != pid
    logs = {"".join(request.logs()) for request in requests[::100]}
    assert logs == {"before\nafter\n"}
    assert scene.old.ended() == 0
    wait_gone(pid)


def test_it_can_be_cancelled(scene: Scene) -> None:
    """By the next server, which has the means."""
    moved = scene.moved("talk")
    pid = moved.worker()
    moved.request.cancel()
    with pytest.raises(Error):
        moved.request.result(timeout=20)
    assert moved.request.show()["status"] == "cancelled"
    assert moved.old.ended() == 0
    wait_gone(pid)


def test_its_time_counts_from_its_beginning(scene: Scene) -> None:
    """Not from the take-over."""
    moved = scene.moved("limited")
    with pytest.raises(Error):
        moved.request.result(timeout=20)
    assert time.time() - scene.ran.stat().st_mtime < 3.0 + 2.5
    assert moved.request.show()["failure"]["kind"] == "timed_out"
    assert moved.old.ended() == 0


def test_a_worker_that_is_killed_is_told_as_any(scene: Scene) -> None:
    """Its parent, the old server, knows how."""
    moved = scene.moved("talk")
    os.kill(moved.worker(), signal.SIGKILL)
    with pytest.raises(Error):
        moved.request.result(timeout=20)
    failure = moved.request.show()["failure"]
    assert failure["cause"] == "signal"
    assert failure["signal"] == signal.SIGKILL
    assert moved.old.ended() == 0


def test_the_end_of_the_old_server_ends_its_workers(scene: Scene) -> None:
    """As that of any server; what may run again does."""
    moved = scene.moved("again")
    moved.old.kill()
    until(lambda: scene.ran.read_text() == "ran\nran\n")
    moved.gate.touch()
    assert moved.request.result(timeout=20) == 2


def test_the_end_of_the_new_server_ends_them_too(scene: Scene) -> None:
    """The old one is their parent, and does not go on with what nobody serves."""
    moved = scene.moved("again")
    pid = moved.worker()
    moved.new.kill()
    assert moved.old.ended() == 0
    wait_gone(pid)
    scene.new = scene.old.start()
    moved.gate.touch()
    assert moved.request.result(timeout=20) == 2


def test_it_keeps_its_services(scene: Scene) -> None:
    """They are the old server's, which lends until nobody has any."""
    moved = scene.moved("lease")
    other = {"path": str(scene.ran), "gate": str(scene.gate)}
    second = moved.client.submit("lease", **other)
    until(lambda: scene.ran.read_text() == "ran\nran\n")
    moved.gate.touch()
    before, after, another = moved.request.result(timeout=20)
    assert before == after != another
    assert before not in second.result(timeout=20)
    assert moved.old.ended() == 0
    wait_gone(before)


def test_one_that_has_closed_its_output_goes_over_too(scene: Scene) -> None:
    """As a program does that becomes a daemon."""
    moved = scene.moved("closed")
    moved.gate.touch()
    assert moved.request.result(timeout=20) == 1
    assert moved.old.ended() == 0


def test_its_key_stays_taken(scene: Scene) -> None:
    """The next request of the key waits for it."""
    moved = scene.moved("keyed", account="a")
    other = {"path": str(scene.ran), "gate": str(scene.gate)}
    second = moved.client.submit("keyed", account="a", **other)
    assert moved.client.submit("add", a=1).result(timeout=20) == 3
    assert scene.ran.read_text() == "ran\n"
    moved.gate.touch()
    assert second.result(timeout=20) == 1
    assert moved.request.result(timeout=20) == 1


def test_it_goes_no_further_than_one_server(scene: Scene) -> None:
    """A third server waits for it: its parent is the first."""
    moved = scene.moved("talk")
    third = moved.new.replace(ready=False)
    try:
        assert "1 workers of the server before" in third.hear("taking")["text"]
        moved.gate.touch()
        assert moved.request.result(timeout=20) == b""
        third.hear("ready")
        assert moved.old.ended() == 0
        assert moved.new.ended() == 0
        assert moved.client.info()["pid"] == third.pid
    finally:
        third.close()


def test_a_server_that_drains_waits_for_it(scene: Scene) -> None:
    """It runs, whoever its parent is."""
    moved = scene.moved("talk")
    assert moved.new.process is not None
    moved.new.process.send_signal(signal.SIGTERM)
    moved.old.process.send_signal(signal.SIGTERM)  # as a service manager does
    moved.new.hear("draining")
    moved.gate.touch()
    assert moved.new.ended() == signal.SIGTERM
    moved.old.ended()
    scene.new = scene.old.start()
    assert moved.request.result(timeout=20) == b""
