"""What closing gives back of the process's descriptors."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from forebay.tensor import FileTensor, TensorClient, TensorServer
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.server.record_files import write


def descriptors() -> dict[str, str]:
    """What the process has open, but the folder that says so."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
    return {name: what for name, what in found.items() if not what.startswith("/proc")}


async def awaited(client: TensorClient) -> None:
    """Use a client in a loop, and close it."""
    async with client as entered:
        await entered.pull("table")


@pytest.mark.usefixtures("queue_of_the_test")
@pytest.mark.parametrize("fabric", ["auto", "stream"], indirect=True)
@pytest.mark.parametrize("scheme", ["unix", "tcp"])
def test_closing_closes_every_descriptor(tmp_path: Path, fabric: str, scheme: str) -> None:
    """A program that keeps closed objects, for what they are called or counted, keeps no more."""
    url = f"unix://{tmp_path}/a.sock" if scheme == "unix" else "tcp://127.0.0.1:0"
    rows = write(tmp_path / "rows", TABLE)
    kept: list[object] = []
    before: dict[str, str] = {}
    for turn in range(2):
        server = TensorServer({"table": TABLE, "rows": FileTensor(rows)}, url)
        client, other = TensorClient(server.url), TensorClient(server.url)
        assert same(client.pull("rows"), client.submit("pull", "table").result())
        asyncio.run(awaited(other))
        client.close()
        server.close()
        kept += [server, client, other]
        if turn == 0:
            before = descriptors()  # with what the process keeps for all
    assert descriptors() == before
    assert "TensorServer" in repr(kept[0])
