from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pool.processes import alive, eventually
from tests.pool.scripts import ROOT, run, write

GONE_S = 5.0
"""What is left behind must be gone within this time."""


class Client:
    """A program that holds three services, and what it owns outside of itself."""

    def __init__(self, way: str, scratch: Path) -> None:
        self.scratch = scratch
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/pool/faults/client.py"), way],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.told: dict[str, Any] = json.loads(line)
        self.owned = [
            self.told["keeper"],
            self.told["template"],
            *self.told["services"],
            *self.told["grandchildren"],
        ]
        assert len(set(self.owned)) == 8
        assert all(map(alive, self.owned))
        self.sockets = sockets_of(self.owned)
        assert len(self.sockets) >= 4  # control, orders, and one of each service
        assert self.sockets <= open_sockets()
        assert all(Path(file).exists() for file in self.told["files"])
        assert list(scratch.glob("forebay-keeper-*"))
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def left(self, *, sockets: bool = True) -> list[str]:
        """What still exists of what it owned."""
        found = [f"process {pid}" for pid in self.owned if alive(pid)]
        found += [str(path) for path in self.scratch.iterdir()]
        if sockets:
            found += [f"socket {inode}" for inode in self.sockets & open_sockets()]
        return found

    def interrupt(self) -> None:
        """Ctrl-C: the terminal signals the whole foreground group."""
        assert eventually(lambda: waits(self.process.pid))
        os.killpg(self.process.pid, signal.SIGINT)

    def expect_nothing_left(self, *, sockets: bool = True) -> None:
        """Everything is gone in time."""
        gone = eventually(lambda: not self.left(sockets=sockets), GONE_S)
        assert gone, f"left after {GONE_S} s: {self.left(sockets=sockets)}"


def sockets_of(pids: list[int]) -> set[str]:
    """Inodes of the sockets that processes hold."""
    found = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                target = os.readlink(entry)
                if target.startswith("socket:"):
                    found.add(target[len("socket:[") : -1])
    return found


def open_sockets() -> set[str]:
    """Inodes of all Unix sockets of the machine."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return {line.split()[6] for line in lines}


def waits(pid: int) -> bool:
    """Whether a process sleeps in a system call."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@contextlib.contextmanager
def client(way: str, scratch: Path) -> Iterator[Client]:
    """A client, killed at the end whatever happened."""
    running = Client(way, scratch)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def test_a_killed_client_leaves_nothing(tmp_path: Path) -> None:
    """No process, socket or file survives a program that had no chance to clean up."""
    with client("wait_for_the_end", tmp_path) as killed:
        killed.process.kill()
        killed.expect_nothing_left()


@pytest.mark.parametrize("way", ["fork", "multiprocessing_fork"])
def test_a_child_that_outlives_the_killed_client_keeps_no_service(way: str, tmp_path: Path) -> None:
    """A forked child holds the same descriptors; the services end with their owner all the same."""
    with client(way, tmp_path) as killed:
        child = killed.told["child"]
        try:
            killed.process.kill()
            killed.expect_nothing_left(sockets=False)
            assert alive(child)
        finally:
            os.kill(child, signal.SIGKILL)
        killed.expect_nothing_left()


@pytest.mark.parametrize(
    ("way", "code"), [("leave", 0), ("fail", 1), ("exit_in_thread", 0), ("exit_in_main", 3)]
)
def test_a_client_that_ends_leaves_nothing(way: str, code: int, tmp_path: Path) -> None:
    """However a program ends by itself, what it held ends with it, and its exit code stays."""
    with client(way, tmp_path) as ended:
        assert ended.process.wait(timeout=10) == code
        ended.expect_nothing_left()
        assert ended.process.stderr is not None
        said = ended.process.stderr.read()
        assert ("LookupError: nobody catches this" in said) == (way == "fail")
        assert "forebay" not in said.replace(str(ROOT), "")


@pytest.mark.parametrize("way", ["call", "acquire", "start"])
def test_ctrl_c_ends_a_client_that_waits(way: str, tmp_path: Path) -> None:
    """Ctrl-C is KeyboardInterrupt at once, wherever the program waits; nothing is left."""
    with client(way, tmp_path) as interrupted:
        interrupted.interrupt()
        began = time.monotonic()
        _, said = interrupted.process.communicate(timeout=20)
        assert time.monotonic() - began < GONE_S
        assert interrupted.process.returncode == -signal.SIGINT
        assert said.count("Traceback") == 1, said
        assert said.rstrip().endswith("KeyboardInterrupt")
        interrupted.expect_nothing_left()


def test_ctrl_c_does_not_reach_the_keeper(tmp_path: Path) -> None:
    """A program that handles Ctrl-C itself keeps its pool, even while the keeper is starting."""
    program = write(
        tmp_path / "program.py",
        """
        import os, signal, threading, time
        import forebay
        from tests.pool.services import Echo

        interrupts = []

        def storm():
            while not done.wait(0.001):
                os.killpg(0, signal.SIGINT)

        if __name__ == "__main__":
            signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
            os.setpgid(0, 0)
            for _ in range(3):
                done = threading.Event()
                thread = threading.Thread(target=storm)
                thread.start()
                try:
                    with forebay.ServicePool(max_size=1) as pool, pool.acquire(Echo) as echo:
                        assert echo.echo(1) == 1
                finally:
                    done.set()
                    thread.join()
            assert interrupts
            print("served")
        """,
    )
    ended = run(program, cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("served\n", "")


def test_keeper_and_client_killed_at_once_end_what_the_keeper_started(tmp_path: Path) -> None:
    """Services and template die by their own signal; only what services had started may live on.

    The directories, whose names the keeper alone knew, go when a keeper next starts there.
    """
    with client("wait_for_the_end", tmp_path) as killed:
        keeper, client_pid = killed.told["keeper"], killed.process.pid
        grandchildren = killed.told["grandchildren"]
        try:
            os.kill(keeper, signal.SIGSTOP)  # it does nothing about the client's end any more
            os.kill(client_pid, signal.SIGKILL)
            os.kill(keeper, signal.SIGKILL)
            direct = [keeper, killed.told["template"], *killed.told["services"]]
            gone = eventually(lambda: not any(map(alive, direct)), GONE_S)
            assert gone, f"alive after {GONE_S} s: {[pid for pid in direct if alive(pid)]}"
            assert list(tmp_path.glob("forebay-keeper-*")), "nobody is left to remove them"
        finally:
            for pid in grandchildren:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not any(map(alive, grandchildren)))
        with client("leave", tmp_path) as later:
            assert later.process.wait(timeout=10) == 0
        killed.expect_nothing_left()
