"""Callers and servers that do not see each other's process, as of two containers."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay import rpc
from tests.namespaces import needs_namespace, unshared

from .conftest import ROOT, Run
from .network_server import Handler

pytestmark = [pytest.mark.needs("unshare"), needs_namespace]

CALLER = """
import sys
from forebay import rpc
with rpc.connect(sys.argv[1], codec=sys.argv[2]) as channel:
    print(channel.call("echo", (sys.argv[2],), timeout=20))
"""


@contextlib.contextmanager
def server_within(url: str) -> Iterator[None]:
    """A server in a PID namespace of its own."""
    process = subprocess.Popen(
        unshared([sys.executable, "-m", "tests.rpc.network_server", url]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == url
        yield
    finally:
        process.communicate(timeout=20)


@pytest.mark.parametrize("codec", ["msgpack", "pickle"])
def test_a_server_in_a_container_serves_the_host(tmp_path: Path, codec: str) -> None:
    """The kernel gives such a caller the number 0, but its user all the same."""
    url = f"unix://{tmp_path}/s"
    with server_within(url):
        for _ in range(2):
            with rpc.connect(url, codec=codec) as channel:
                assert channel.call("echo", ([1, codec],), timeout=20) == [1, codec]


@pytest.mark.parametrize("codec", ["msgpack", "pickle"])
def test_a_caller_in_a_container_reaches_the_host(run: Run, tmp_path: Path, codec: str) -> None:
    """The server's process is as invisible there as the caller's is the other way."""
    url = f"unix://{tmp_path}/s"

    async def work() -> None:
        async with rpc.serve(Handler(), url):
            process = await asyncio.create_subprocess_exec(
                *unshared([sys.executable, "-c", CALLER, url, codec]),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=ROOT,
            )
            out, err = await process.communicate()
            assert out.decode().strip() == codec, err.decode()

    run(work())


def test_large_arguments_reach_a_server_in_a_container(tmp_path: Path) -> None:
    """Memory that goes by reference needs a descriptor of the peer's process, not its number."""
    url = f"unix://{tmp_path}/s"
    with server_within(url), rpc.connect(url, codec="pickle") as channel:
        for size in (1 << 10, 1 << 20, 1 << 24):
            assert len(channel.call("echo", (bytearray(size),), timeout=20)) == size
