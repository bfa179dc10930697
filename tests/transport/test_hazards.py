"""Hazards of sockets and descriptors that no other file has; docs name the test of each hazard."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forebay.errors import BrokenError, ProtocolError
from forebay.transport import AsyncConnection, Tls, connect, listen
from forebay.transport import _socket as sockets
from tests.loops import Run
from tests.transport.certificates import Authority
from tests.transport.loops import echo, until
from tests.transport.message_bytes import preface
from tests.transport.shm_peer import Liar, record

FDS = Path("/proc/self/fd")
SENT = 500


def descriptors() -> dict[int, str]:
    """Every descriptor of this process, and what it is."""
    found = {}
    for entry in FDS.iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            found[int(entry.name)] = os.readlink(entry)
    return found


@contextlib.asynccontextmanager
async def opened(scheme: str, tmp_path: Path) -> AsyncIterator[AsyncConnection]:
    """A connection to an echo in this process, which has answered once."""
    server = client = None
    if scheme == "tls":
        authority = Authority(tmp_path)
        signed = authority.sign("server")
        server = Tls.server(cert=signed.cert, key=signed.key)
        client = Tls.client(ca=authority.ca)
    local = scheme in ("unix", "shm")
    url = f"{scheme}://{tmp_path}/own/s" if local else f"{scheme}://127.0.0.1:0"
    async with (
        listen(url, echo, tls=server) as listener,
        connect(listener.url, tls=client) as connection,
    ):
        await connection.send(bytes(100_000))
        assert len((await connection.recv())[0]) == 100_000
        yield connection


@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix", "shm"])
def test_no_descriptor_is_inherited(run: Run, scheme: str, tmp_path: Path) -> None:
    """A program that is started keeps no port, socket or shared memory of ours open."""

    async def main() -> None:
        before = descriptors()
        async with opened(scheme, tmp_path):
            ours = descriptors().keys() - before.keys()
            assert len(ours) >= 3
            assert [number for number in ours if os.get_inheritable(number)] == []

    run(main())


def test_shared_memory_goes_with_its_connections(run: Run, tmp_path: Path) -> None:
    """No descriptor and no mapping of it is left when both ends are closed."""

    def held() -> tuple[int, int]:
        named = [name for name in descriptors().values() if "memfd:forebay" in name]
        return len(named), Path("/proc/self/maps").read_text().count("memfd:forebay:connection")

    async def main() -> None:
        before = held()
        for number in range(10):
            folder = tmp_path / str(number)
            folder.mkdir()
            async with opened("shm", folder):
                assert held() > before
            await until(lambda: held() == before or (gc.collect() and held() == before))

    run(main())


def test_a_crowd_of_messages_rings_once(run: Run, tmp_path: Path) -> None:
    """Whoever is awake, or rung already, costs its peer no system call for each message."""

    def rings() -> list[int]:
        counted = []
        for number, name in descriptors().items():
            if name == "anon_inode:[eventfd]":
                text = Path(f"/proc/self/fdinfo/{number}").read_text()
                match = re.search(r"eventfd-count: *([0-9a-f]+)", text)
                assert match is not None
                counted.append(int(match[1], 16))
        return counted

    async def main() -> None:
        async with opened("shm", tmp_path) as connection:
            await asyncio.sleep(0)  # both ends sleep
            for _ in range(SENT):
                await connection.send(b"x")  # without a turn of the loop: nobody listens
            assert max(rings()) == 1
            for _ in range(SENT):
                assert await connection.recv() == [b"x"]

    run(main())


def test_more_descriptors_than_a_record_has_are_refused() -> None:
    """What the kernel cut off is noticed, and what it brought is closed."""
    liar = Liar()
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    try:
        given = [liar.memory, liar.bell, liar.process, *spare]
        socket.send_fds(liar.lifeline, [record(1)], given)
        before = len(descriptors())
        with pytest.raises(ProtocolError, match="descriptors"):
            liar.core.handshake_blocking(5)
        assert len(descriptors()) == before
    finally:
        for descriptor in spare:
            os.close(descriptor)
        liar.close()


def test_a_listener_takes_its_port_again_at_once(run: Run) -> None:
    """A server that is restarted waits for no TIME_WAIT of the connections that it had closed."""

    async def main() -> None:
        async def close(connection: AsyncConnection) -> None:
            await connection.recv()

        url = "tcp://127.0.0.1:0"
        for _ in range(3):
            async with listen(url, close) as listener:
                url = listener.url
                async with connect(url) as connection:
                    await connection.send(b"close first")
                    with pytest.raises(BrokenError):
                        await connection.recv()
            port = int(url.rpartition(":")[2])
            waiting = await asyncio.to_thread(Path("/proc/net/tcp").read_text)
            assert f":{port:04X}" in waiting, "nothing waits"

    run(main())


def test_a_dead_link_ends_by_itself(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is acknowledged, or nothing taken, the kernel gives up, and says why."""
    monkeypatch.setattr(sockets, "DEAD_AFTER_MS", 500)
    wanted = {
        socket.TCP_KEEPIDLE: sockets.KEEPALIVE_IDLE_S,
        socket.TCP_KEEPINTVL: sockets.KEEPALIVE_INTERVAL_S,
        socket.TCP_KEEPCNT: sockets.KEEPALIVE_PROBES,
        socket.TCP_USER_TIMEOUT: 500,
    }
    seen: list[AsyncConnection] = []

    def check(connection: AsyncConnection) -> None:
        with socket.socket(fileno=os.dup(connection._core.fileno())) as shown:
            assert shown.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            for option, value in wanted.items():
                assert shown.getsockopt(socket.IPPROTO_TCP, option) == value

    async def handler(connection: AsyncConnection) -> None:
        check(connection)
        seen.append(connection)
        async for _ in connection:
            pass

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", handler) as listener:
            async with connect(listener.url) as connection:
                check(connection)
            # A peer whose window stays shut, as behind a link that is cut.
            with socket.create_server(("127.0.0.1", 0)) as server:
                url = "tcp://{}:{}".format(*server.getsockname())
                accepting = asyncio.create_task(asyncio.to_thread(server.accept))
                opening = asyncio.create_task(_opened(url))
                raw, _ = await accepting
                with raw:
                    raw.sendall(preface())
                    async with await opening as connection:
                        with pytest.raises(BrokenError, match="timed out"):
                            await _send_for_ever(connection)
        assert seen

    run(main())


async def _opened(url: str) -> AsyncConnection:
    return await connect(url)


async def _send_for_ever(connection: AsyncConnection) -> None:
    while True:
        await connection.send(bytes(1 << 20))
