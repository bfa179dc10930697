"""Servers and clients that do not see each other's process, as of two containers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from forebay.executor import Client
from tests.executor.serving import Serving
from tests.namespaces import needs_namespace, unshared

pytestmark = [pytest.mark.needs("unshare"), needs_namespace]

APP = """
import forebay

app = forebay.App("contained")


@app.request(lane="short")
def double(blob: bytes) -> bytes:
    return blob + blob
"""

CLIENT = """
import sys
from forebay.executor import Client
with Client(sys.argv[1], timeout=20) as client:
    print(len(client.run("double", blob=bytes(int(sys.argv[2])))))
"""

SIZES = [1, 200_000, 3_000_000]
"""In a message, in shared memory, and with a result that is a file."""


def test_a_client_on_the_host_uses_a_server_in_a_container(tmp_path: Path) -> None:
    """The kernel gives such a client the number 0, but its user all the same."""
    serving = Serving(tmp_path, APP)
    serving.program = unshared(serving.program, proc=True)
    with serving, Client(f"unix://{serving.socket}", timeout=20) as client:
        for size in SIZES:
            assert len(client.run("double", blob=bytes(size))) == 2 * size
        assert client.ask("info")["pid"] != serving.pid
        serving.kill()  # what made the namespace passes no signal on


def test_a_client_in_a_container_uses_a_server_on_the_host(tmp_path: Path) -> None:
    """As of a CI job that finds the socket of its host in a mount."""
    with Serving(tmp_path, APP) as serving:
        for size in SIZES:
            url = f"unix://{serving.socket}"
            command = unshared([sys.executable, "-c", CLIENT, url, str(size)], proc=True)
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.stdout.strip() == str(2 * size), done.stderr
