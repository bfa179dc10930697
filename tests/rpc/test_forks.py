"""Servers that fork: what their children keep of them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT, wait_for

ANY = "tcp://127.0.0.1:0"


@contextlib.contextmanager
def forking(kind: str, url: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """A server with a forked child: its process, its URL, the child."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.rpc.forking_server", kind, url],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    where, child = process.stdout.readline().split()
    try:
        yield process, where, int(child)
    finally:
        process.kill()
        process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)
        process.stdout.close()


def refuses(url: str) -> bool:
    """Whether nobody listens there."""
    if url.startswith("unix://"):
        dialled = socket.socket(socket.AF_UNIX)
        address: object = url.removeprefix("unix://")
    else:
        dialled = socket.socket()
        host, port = url.removeprefix("tcp://").rsplit(":", 1)
        address = (host, int(port))
    with dialled:
        dialled.settimeout(5)
        return dialled.connect_ex(address) != 0  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["rpc", "messages", "tensor"])
@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_a_killed_servers_child_keeps_no_address(tmp_path: Path, kind: str, scheme: str) -> None:
    """Callers must not be taken in by nobody, and the next server must be able to listen there."""
    url = f"unix://{tmp_path}/s" if scheme == "unix" else ANY
    with forking(kind, url) as (first, where, child):
        assert not refuses(where)
        first.kill()
        first.wait()
        os.kill(child, 0)  # it lives
        wait_for(lambda: refuses(where))
        with forking(kind, where) as (_, again, _):
            assert again == where
            assert not refuses(where)


def test_a_child_that_ends_leaves_its_parents_server_alone(tmp_path: Path) -> None:
    """Whatever a child closes on its way, the parent's file and lock stay."""
    url = f"unix://{tmp_path}/s"
    with forking("rpc", url) as (_, where, child):
        os.kill(child, signal.SIGTERM)
        assert not refuses(where)
        second = subprocess.run(
            [sys.executable, "-m", "tests.rpc.forking_server", "rpc", url],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
            check=False,
        )
        assert "is in use by process" in second.stderr


FULL = """
import os, resource, socket
from forebay import _forks
from forebay.transport._accept import TcpListeningSocket

class Broken:
    def _forget(self):
        raise OSError(24, "no descriptor")

servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
sockets = [TcpListeningSocket(server, lambda accepted: None) for server in servers]
broken = [Broken() for _ in range(8)]
for one in broken:
    _forks.watch(one)
null = os.open(os.devnull, os.O_RDONLY)
resource.setrlimit(resource.RLIMIT_NOFILE, (null + 1, null + 1))
child = os.fork()
if child == 0:
    listening = [each for each in sockets if os.path.exists(f"/proc/self/fd/{each.fileno()}")
                 and os.readlink(f"/proc/self/fd/{each.fileno()}") != os.devnull]
    os._exit(len(listening))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_without_a_free_descriptor_listens_no_more() -> None:
    """One part that could not be forgotten kept all behind it, and eight ports stayed taken."""
    done = subprocess.run(
        [sys.executable, "-c", FULL], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n", done.stderr
