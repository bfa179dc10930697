"""What a server does where something is taken away from it: descriptors, its state, its sockets."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import LimitError
from forebay.executor import Client
from forebay.pool import SharedPool
from tests.executor.serving import RefusedError, Serving, descendants, until
from tests.other_user import needs_root

APP = (Path(__file__).parent / "server_app.py").read_text()
SHARED_MEMORY_APP = """
from pathlib import Path

import numpy as np

import forebay

app = forebay.App("shared_memory")


class Numbers(forebay.Service):
    def some(self, count: int):
        return np.arange(count)


@app.request()
def refused() -> str:
    try:
        Path("/dev/shm/own").write_bytes(bytes(4096))
    except OSError as error:
        return error.strerror
    return "taken"


@app.request()
def numbers(count: int):
    return np.arange(count)


@app.request()
def in_arena(ctx: forebay.Context, count: int) -> int:
    array = np.frombuffer(ctx.arena.allocate(8 * count), np.int64)
    array[:] = range(count)
    return int(array.sum())


@app.request()
def leased(ctx: forebay.Context, count: int) -> int:
    with ctx.acquire(Numbers) as lent:
        return int(lent.some(count).sum())
"""
SOME = 1 << 20


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server of two workers."""
    with Serving(tmp_path, APP, max_workers=2) as made:
        yield made


def test_who_comes_when_no_descriptor_is_left_is_told_so(serving: Serving) -> None:
    """Clients hung without end, and the server said nothing."""
    url = f"unix://{serving.socket}"
    with Client(url, timeout=20) as first:
        assert first.run("add", a=1) == 3
        # As many as it has now, and room for a few clients.
        used = len(list(Path(f"/proc/{serving.pid}/fd").iterdir()))
        _, hard = resource.prlimit(serving.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(serving.pid, resource.RLIMIT_NOFILE, (used + 4, hard))
        clients: list[Client] = []
        try:
            with pytest.raises(LimitError) as caught:
                _crowd(url, clients, 40)
            assert caught.value.limit == "RLIMIT_NOFILE"
            told = serving.hear("warning")["text"]
            assert "RLIMIT_NOFILE" in told
            assert "ulimit -n" in told
            assert first.run("add", a=2) == 4, "who was there is served"
            assert first.list(), "and may look"
        finally:
            for client in clients:
                client.close()
        resource.prlimit(serving.pid, resource.RLIMIT_NOFILE, (hard, hard))
        with Client(url, timeout=20) as late:
            assert late.run("add", a=5) == 7


def _crowd(url: str, clients: list[Client], count: int) -> None:
    for _ in range(count):
        clients.append(Client(url, timeout=20))
        assert clients[-1].run("add", a=1) == 3


def test_a_client_above_clients_max_is_told_so(serving: Serving) -> None:
    """The thousandth program waited for ever; now it knows which limit it met."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    _, its_hard = resource.prlimit(serving.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(serving.pid, resource.RLIMIT_NOFILE, (min(4096, its_hard), its_hard))
    crowd: list[socket.socket] = []
    url = f"unix://{serving.socket}"
    with Client(url, timeout=20) as early:
        known = early.submit("add", a=1).id
    asks: list[Callable[[Client], Any]] = [
        lambda late: late.run("add", a=1),
        lambda late: late.ask("info"),
        lambda late: late.get(known).result(timeout=20),
    ]
    try:
        for _ in range(1_024):
            crowd.append(socket.socket(socket.AF_UNIX))
            crowd[-1].connect(serving.socket)
        for ask in asks:
            with Client(url, timeout=20) as late, pytest.raises(LimitError) as caught:
                ask(late)
            assert caught.value.limit == "clients_max"
        status = subprocess.run(
            [sys.executable, "-m", "forebay.cli", "status", "--timeout", "20s"],
            env=serving.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert status.returncode == 5, status.stderr
        assert "clients_max" in status.stderr
        assert "clients_max (1024)" in serving.hear("warning")["text"]
    finally:
        for one in crowd:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def served() -> bool:
        try:
            with Client(url, timeout=20) as again:
                return bool(again.run("add", a=1) == 3)
        except LimitError:
            return False

    assert until(served)


def test_a_server_whose_state_was_removed_refuses_and_says_so(
    serving: Serving, tmp_path: Path
) -> None:
    """It went on accepting, and everything was gone at its end."""
    with serving.caller() as caller:
        assert caller.run("add", a=1) == 3
        assert caller.ask("info")["fault"] is None
        shutil.rmtree(tmp_path / "state")
        assert "was removed" in caller.ask("info")["fault"]
        with pytest.raises(RefusedError) as caught:
            until(lambda: caller.submit("add", a=1) and None)
        assert caught.value.told["code"] == "store"
        assert "was removed" in caught.value.told["message"]
        assert "was removed" in caller.ask("info")["figures"]["held"]


def test_a_retry_that_is_not_on_disk_is_not_told_as_queued(
    serving: Serving, tmp_path: Path
) -> None:
    """`forebay retry` said "queued", and the next server had it as failed."""
    with serving.caller() as caller:
        with pytest.raises(RefusedError):
            caller.run("leave", code=3)
        id = caller.ask("resolve", "@last")
        shutil.rmtree(tmp_path / "state")
        (told,) = caller.ask("retry", [id])
        assert "was removed" in told["refused"]
        assert "status" not in told


def test_sockets_that_were_removed_are_made_again(serving: Serving) -> None:
    """A clean-up of the runtime directory left a server that nobody reached."""
    directory = Path(serving.socket).parent
    with serving.caller() as caller:
        assert caller.run("add", a=1) == 3
        pool_socket = caller.ask("info")["pool_socket"]
    before = {file.name for file in directory.iterdir()}
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()

    assert until(lambda: Path(serving.socket).exists(), 30)
    with serving.caller() as caller:
        assert caller.run("add", a=1) == 3
        assert caller.run("sleep", seconds=0.0)
    assert until(lambda: {file.name for file in directory.iterdir()} >= before, 30)
    with SharedPool(pool_socket) as pool:  # as every new worker of the server
        assert pool.stats()["pid"] == serving.pid


def test_a_notice_that_cannot_be_written_again_ends_no_server(serving: Serving) -> None:
    """What ran was lost with the server, for a file that only says where it is."""
    place = Path(serving.socket)
    with serving.caller() as caller:
        id = caller.submit("sleep", seconds=1.0)
        (notice,) = (file for file in place.parent.iterdir() if file.suffix == ".json")
        notice.with_suffix(f".{serving.pid}.new").mkdir()
        place.unlink()
        assert str(notice) in serving.hear("warning")["text"]
        assert caller.wait(id) is not None
    with serving.caller() as caller:
        assert caller.run("add", a=1) == 3


def test_a_server_that_drains_is_not_announced_again(tmp_path: Path) -> None:
    """Commands went to a server that refuses them, instead of starting the next one."""
    note = tmp_path / "note"
    with Serving(tmp_path, APP, max_workers=2) as serving, serving.caller() as caller:
        place = Path(serving.socket)
        id = caller.submit("mark", path=str(note), seconds=3.0)
        until(note.exists)
        os.kill(serving.pid, signal.SIGTERM)
        serving.hear("draining")
        for _ in range(2):  # with the second one, the first one is known to have been noticed
            place.unlink()
            until(place.exists, 30)
        assert caller.ask("info")["draining"] is True
        assert not [file for file in place.parent.iterdir() if file.suffix == ".json"]
        assert isinstance(caller.wait(id), int)
        serving.ended()


@pytest.mark.parametrize("which", ["fb template", "fb keeper"])
def test_a_stopped_template_or_keeper_holds_up_no_worker(serving: Serving, which: str) -> None:
    """A debugger, or a suspended machine's leftover, stopped what only starts workers."""
    with serving.caller() as caller:
        assert caller.run("sleep", seconds=0.0)
        assert caller.run("add", a=1) == 3, "a worker of short requests is there too"
        processes = {_name(pid): pid for pid in descendants(serving.pid)}
        os.kill(processes[which], signal.SIGSTOP)
        try:
            assert caller.run("add", a=1) == 3
            assert caller.run("sleep", seconds=0.0)
            more = [caller.submit("sleep", seconds=0.2) for _ in range(4)]
        finally:
            os.kill(processes[which], signal.SIGCONT)
        assert all(caller.wait(id) for id in more)


@needs_root
@pytest.mark.needs("unshare")
def test_a_full_dev_shm_disturbs_nobody(tmp_path: Path) -> None:
    """Results by reference, arenas and leases lie in memory files, which it does not limit."""
    serving = Serving(tmp_path, SHARED_MEMORY_APP, max_workers=2)
    full = (
        "mount -t tmpfs -o size=4k tmpfs /dev/shm && "
        'head -c 4096 /dev/zero >/dev/shm/full && exec "$@"'
    )
    serving.program = ["unshare", "--mount", "sh", "-c", full, "sh", *serving.program]
    with serving, Client(f"unix://{serving.socket}", timeout=20) as client:
        assert client.run("refused") == os.strerror(errno.ENOSPC)
        assert client.run("numbers", count=SOME).sum() == sum(range(SOME))
        assert client.run("in_arena", count=SOME) == sum(range(SOME))
        assert client.run("leased", count=SOME) == sum(range(SOME))


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
