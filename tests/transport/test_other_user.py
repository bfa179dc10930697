"""Another user of this machine at listeners of the loopback interface, which all users reach."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import forebay
from forebay import rpc
from forebay.tensor import TensorClient, TensorServer
from forebay.tensor.server.own_address import own_url
from forebay.transport import connect, listen, native
from tests.other_user import as_nobody, needs_root

LOOPBACK = "tcp://127.0.0.1:0"
WAIT_S = 20


class Store:
    """What is called."""

    async def get(self) -> int:
        return 7


async def echo(connection: Any) -> None:
    async for message in connection:
        await connection.send(*message)


@asynccontextmanager
async def native_echo(url: str, **options: Any) -> AsyncIterator[Any]:
    with listen(url, native=native.Echo(), **options) as listener:
        yield listener


def tell_first(url: str) -> str:
    """Say what every protocol of ours takes in silence, and tell how that ends."""
    where = urlsplit(url)
    try:
        with socket.create_connection((where.hostname, where.port), timeout=WAIT_S) as stranger:
            stranger.settimeout(WAIT_S)
            return f"got {stranger.recv(100)!r}"
    except ConnectionResetError:
        return "got b''"


def pull_and_push(url: str) -> str:
    """What a stranger gets of a tensor server; rows, where it is let in."""
    told = []
    for work in (
        lambda client: client.pull("table", [0]).tolist(),
        lambda client: client.push("table", [0], np.ones((1, 2))),
    ):
        try:
            with TensorClient(url, connect_timeout=2) as client:
                told.append(str(work(client)))
        except forebay.Error as error:
            told.append(type(error).__name__)
    return " ".join(told)


SERVERS: dict[str, Callable[..., AbstractAsyncContextManager[Any]]] = {
    "listen": lambda **options: listen(LOOPBACK, echo, **options),
    "rpc": lambda **options: rpc.serve(Store(), LOOPBACK, **options),
    "native": lambda **options: native_echo(LOOPBACK, **options),
}


@needs_root
@pytest.mark.parametrize("kind", SERVERS)
def test_another_user_is_turned_away_over_loopback(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A port of 127.0.0.1 is open to every user; without a token the kernel says whose they are."""

    async def turned_away() -> str:
        async with SERVERS[kind]() as server:
            return await asyncio.to_thread(as_nobody, lambda: tell_first(server.url))

    assert asyncio.run(turned_away()) == "got b''"
    if kind != "native":
        assert "a peer that belongs to user 65534 was turned away" in caplog.text


@needs_root
@pytest.mark.parametrize("url", [None, LOOPBACK])
def test_another_user_gets_and_changes_no_tensor(
    url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that any user may push are anybody's weights."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    table = np.zeros((4, 2))
    with TensorServer({"table": table}, *(() if url is None else (url,))) as server:
        told = as_nobody(lambda: pull_and_push(server.url)).split()
        assert told == ["BrokenError", "BrokenError"]
        with TensorClient(server.url) as client:
            assert not client.pull("table").any()
            client.push("table", [0], np.ones((1, 2)))
            assert client.pull("table", [0]).tolist() == [[1.0, 1.0]]


@needs_root
def test_who_is_told_to_let_all_in_does() -> None:
    """`unprotected=True` is the word for other users of this machine too."""
    table = np.full((4, 2), 3.0)
    with TensorServer({"table": table}, LOOPBACK, unprotected=True) as server:
        assert as_nobody(lambda: pull_and_push(server.url)) == "[[3.0, 3.0]] None"


@needs_root
def test_a_token_is_enough_for_another_user() -> None:
    """Whoever was given it is meant."""

    async def main() -> str:
        async with rpc.serve(Store(), LOOPBACK, token="secret") as server:

            def call() -> int:
                with rpc.connect(server.url, token="secret") as store:
                    return int(store.call("get"))

            return await asyncio.to_thread(as_nobody, call)

    assert asyncio.run(main()) == "7"


def test_this_user_needs_no_token_over_loopback() -> None:
    """Nothing changes for programs of one user."""

    async def main() -> None:
        async with listen(LOOPBACK, echo) as listener, connect(listener.url) as connection:
            await connection.send(b"one")
            assert [bytes(part) for part in await connection.recv()] == [b"one"]

    asyncio.run(main())


def test_a_tensor_server_listens_in_the_runtime_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its socket is this user's, goes with the server, and what a killed one left goes too."""
    with (
        tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp") as short,  # as a socket's path is
        monkeypatch.context() as environment,
    ):
        environment.setenv("XDG_RUNTIME_DIR", short)
        _listens_in(Path(short))


def _listens_in(runtime: Path) -> None:
    with TensorServer({"a": np.arange(3)}) as one, TensorServer({"a": np.arange(4)}) as two:
        places = [Path(urlsplit(server.url).path) for server in (one, two)]
        assert {place.parent for place in places} == {runtime / "forebay"}
        assert [place.stat().st_mode & 0o777 for place in places] == [0o600, 0o600]
        left = runtime / "forebay" / "tensors-00000000.sock"
        for name in (left, Path(f"{left}.lock")):
            name.touch()
            os.utime(name, (1, 1))
        for lock in runtime.glob("forebay/*.lock"):
            os.utime(lock, (1, 1))  # as if they had been made long ago
        own_url()
        assert not left.exists()
        assert not Path(f"{left}.lock").exists()
        with TensorClient(one.url) as client:
            assert client.pull("a").tolist() == [0, 1, 2]
    assert list((runtime / "forebay").iterdir()) == []


def test_a_long_runtime_directory_does_not_keep_a_server_from_listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path has 107 bytes at most; the user named no path that could be shorter."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("long" * 25)))
    with TensorServer({"a": np.arange(3)}) as server:
        assert server.url.startswith(f"unix:///tmp/forebay-{os.geteuid()}/")


NAMELESS = """
import asyncio
import forebay
from forebay import rpc
async def main():
    async with rpc.serve(object(), "tcp://127.0.0.1:0"):
        pass
try:
    asyncio.run(main())
except forebay.ConfigError as error:
    print(error)
"""


def test_a_user_without_a_number_of_his_own_is_told_from_nobody() -> None:
    """In a user namespace without a map every user is 65534: the owner of a peer says nothing."""
    done = subprocess.run(
        ["unshare", "--user", sys.executable, "-c", NAMELESS],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr:
        pytest.skip(f"no user namespaces: {done.stderr.strip()}")
    assert "token=" in done.stdout, done.stdout + done.stderr
