"""Fixtures of a server and a client of it: a small one, or one of the application of a module."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay.executor.client.client import Client
from tests.executor.serving import Serving
from tests.executor.small_server import SmallServer


@pytest.fixture
def server() -> Iterator[SmallServer]:
    """A server that runs nothing; its directory has a short path, as sockets want."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        server = SmallServer(Path(directory))
        yield server
        server.kill()


@pytest.fixture
def client(server: SmallServer) -> Iterator[Client]:
    """A client of it."""
    with Client(server.url, timeout=20.0) as client:
        yield client


@pytest.fixture
def serving(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Serving]:
    """A server of the application whose source is the module's `APP`."""
    with Serving(tmp_path, request.module.APP) as serving:
        yield serving


@pytest.fixture(name="client")
def client_of_serving(serving: Serving) -> Iterator[Client]:
    """A client of it."""
    with Client(f"unix://{serving.socket}", timeout=20.0) as client:
        yield client


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[Path]:
    """The state directory of a server in `directory`, on a file system of this size of its own."""
    state = directory / "state"
    state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(state)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield state
    finally:
        subprocess.run(["umount", str(state)], check=True)


def fill(disk: Path) -> Path:
    """Take all that is left of a small disk, until the file that this returns is removed."""
    ballast = disk / "ballast"
    dd = ["dd", "if=/dev/zero", f"of={ballast}", "bs=4k", "status=none"]
    assert "No space left" in subprocess.run(dd, capture_output=True, text=True, check=False).stderr
    assert os.statvfs(disk).f_bavail == 0
    return ballast
