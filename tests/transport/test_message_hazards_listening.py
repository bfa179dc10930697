"""What hostile peers, full tables and old files do to a listener, and what its user gets then."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import BrokenError, ConfigError, DiedError, ProtocolError
from forebay.transport import AsyncConnection, connect, listen, native
from forebay.transport._address import parse
from forebay.transport._dial import dial, dial_blocking
from forebay.transport._socket import bind_all
from tests.loops import Run
from tests.transport.loops import echo, until
from tests.transport.message_bytes import announced, message, preface, resident_bytes, token
from tests.transport.test_message_hazards import dialled, read_all

BOMBS = {
    "one huge frame": announced(1 << 60),
    "the largest number": announced((1 << 64) - 1),
    "a sum that overflows": announced((1 << 64) - 1, (1 << 64) - 1, 2),
    "a sum above the limit": announced(1 << 30, 1),
    "65,535 huge frames": announced(*[1 << 50] * 65_535),
    "65,535 frames within the limit": announced(*[(1 << 30) // 65_535] * 65_535),
    "exactly the limit, and nothing of it": announced(1 << 30),
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("secret", [None, "secret"])
def test_announced_lengths_obtain_no_memory(run: Run, bomb: str, secret: str | None) -> None:
    """What a peer announces costs nothing; above a limit it is refused, below it is cut later."""
    started: list[AsyncConnection] = []
    raised: list[BaseException] = []

    async def handler(connection: AsyncConnection) -> None:
        started.append(connection)
        try:
            await connection.recv()
        except BaseException as error:
            raised.append(error)
            raise

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", handler, token=secret) as listener:
            before = resident_bytes()
            with dialled(listener.url) as raw:
                shown = b"" if secret is None else token(secret.encode())
                raw.sendall(preface() + shown)
                await until(lambda: bool(started))
                with contextlib.suppress(ConnectionError):
                    await asyncio.to_thread(raw.sendall, BOMBS[bomb])
                with contextlib.suppress(OSError):  # it was faster
                    raw.shutdown(socket.SHUT_WR)
                    await asyncio.to_thread(read_all, raw)
            await until(lambda: bool(raised))
            assert resident_bytes() - before < 16 << 20

    run(main())
    within = "within" in bomb or "exactly" in bomb
    assert isinstance(raised[0], BrokenError if within else ProtocolError)


def test_a_slow_loris_is_dropped_and_told_of(
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A byte now and then does not hold a place beyond the handshake's time."""

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", echo, handshake_timeout=1.0) as listener:
            with dialled(listener.url) as loris:
                loris.setblocking(False)
                begun = time.monotonic()
                with contextlib.suppress(ConnectionError):
                    for byte in preface():
                        loris.send(bytes([byte]))
                        await asyncio.sleep(0.4)
                assert time.monotonic() - begun < 10, "all its bytes take 12.8 s"
            assert listener.connections == 0
            async with connect(listener.url) as connection:
                await connection.send(b"x")
                assert await connection.recv() == [b"x"]

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "did not finish its handshake" in caplog.text


def test_all_addresses_of_a_name_share_one_port(run: Run) -> None:
    """Port 0 gives one number, for IPv4 and IPv6 alike."""
    families = {family for family, *_ in socket.getaddrinfo("localhost", 0)}
    if len(families) < 2:
        pytest.skip("localhost has one family here")

    async def main() -> None:
        async with listen("tcp://localhost:0", echo) as listener:
            port = listener.url.rpartition(":")[2]
            for host in ("127.0.0.1", "[::1]"):
                async with connect(f"tcp://{host}:{port}") as connection:
                    await connection.send(b"x")
                    assert await connection.recv() == [b"x"]

    run(main())


def test_a_port_that_another_family_has_taken_is_not_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel chooses for one family alone, so its choice may be refused for the other."""
    refused: list[int] = []

    class Refusing(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6 and len(refused) < 3:
                refused.append(address[1])
                raise OSError(errno.EADDRINUSE, "in use")
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Refusing)
    found = [(socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET6, ("::1", 0, 0, 0))]
    sockets = bind_all(found, 0)
    assert len({bound.getsockname()[1] for bound in sockets}) == 1
    assert len(refused) == 3
    with pytest.raises(OSError, match="in use"):
        bind_all(found, sockets[0].getsockname()[1])
    for bound in sockets:
        bound.close()


@pytest.fixture(params=["no such family", "no such address"])
def without_ipv6(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets of a machine that has no ::1."""
    family_fails = request.param == "no such family"

    class Lacking(socket.socket):
        def __init__(self, family: int = -1, *arguments: Any, **options: Any) -> None:
            if family_fails and family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "no such family")
            super().__init__(family, *arguments, **options)

        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(errno.EADDRNOTAVAIL, "no such address")
            super().bind(address)

        def connect(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(errno.EADDRNOTAVAIL, "no such address")
            super().connect(address)

    monkeypatch.setattr(socket, "socket", Lacking)


@pytest.mark.usefixtures("without_ipv6")
def test_a_family_that_the_machine_lacks_is_left_out() -> None:
    """`localhost` stands for ::1 too in /etc/hosts where the kernel has no IPv6."""
    found = [(socket.AF_INET6, ("::1", 0, 0, 0)), (socket.AF_INET, ("127.0.0.1", 0))]
    for addresses in (found, found[::-1]):
        (bound,) = bind_all(addresses, 0)
        assert bound.getsockname()[0] == "127.0.0.1"
        bound.close()
    with pytest.raises(OSError, match="no such"):
        bind_all(found[:1], 0)


@pytest.mark.usefixtures("without_ipv6")
def test_connecting_goes_on_to_a_family_that_the_machine_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same for those who connect, by both faces."""
    found = [
        (family, socket.SOCK_STREAM, 0, "", where)
        for family, where in (
            (socket.AF_INET6, ("::1", 0, 0, 0)),
            (socket.AF_INET, ("127.0.0.1", 0)),
        )
    ]

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(*kind, (where[0], port, *where[2:])) for *kind, where in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = parse(f"tcp://somewhere:{server.getsockname()[1]}")
        os.close(dial_blocking(address, 10))
        os.close(asyncio.run(dial(address)))
        del found[1]
        with pytest.raises(BrokenError, match="no such"):
            dial_blocking(address, 10)
        with pytest.raises(BrokenError):
            asyncio.run(dial(address))


@pytest.mark.parametrize("table", [None, native.Table({})], ids=["python", "behind a table"])
@pytest.mark.parametrize(
    "raised",
    [TimeoutError("of another service"), BrokenError("another end"), DiedError("a service")],
    ids=lambda raised: type(raised).__name__,
)
def test_what_a_handler_raises_is_logged_as_its_own(
    run: Run, caplog: pytest.LogCaptureFixture, raised: Exception, table: native.Table | None
) -> None:
    """A handler that fails over something else is found in the log, with its traceback."""

    async def handler(connection: AsyncConnection) -> None:
        await connection.recv()
        raise raised

    async def main() -> None:
        async with (
            listen("tcp://127.0.0.1:0", handler, native=table) as listener,
            connect(listener.url) as connection,
        ):
            await connection.send(b"x")
            with pytest.raises(BrokenError):
                await connection.recv()

    run(main())
    (record,) = (each for each in caplog.records if each.name.startswith("forebay.transport"))
    assert "a handler of" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is raised


@pytest.mark.parametrize("table", [None, native.Table({})], ids=["python", "behind a table"])
def test_a_peer_that_leaves_is_no_failure_of_the_handler(
    run: Run, caplog: pytest.LogCaptureFixture, table: native.Table | None
) -> None:
    """A handler need not catch the end of its own connection: anybody could fill the log."""
    taken: list[object] = []

    async def handler(connection: AsyncConnection) -> None:
        while True:
            taken.append(await connection.recv())

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", handler, native=table) as listener:
            with dialled(listener.url) as raw:
                raw.sendall(preface() + message(b"whole") + announced(1_000))
                await until(lambda: bool(taken))
            await until(lambda: listener.connections == 0)

    with caplog.at_level(logging.DEBUG):
        run(main())
    (record,) = (each for each in caplog.records if "ended" in each.getMessage())
    assert record.levelno == logging.DEBUG


def test_each_family_alone_has_a_port_of_its_own(run: Run) -> None:
    """`[::1]:0` listens there and nowhere else."""

    async def main() -> None:
        async with (
            listen("tcp://[::1]:0", echo) as listener,
            connect(listener.url) as connection,
        ):
            assert listener.url.startswith("tcp://[::1]:")
            assert connection.peer_address == listener.url

    run(main())


def test_a_path_that_is_too_long_says_by_how_much(run: Run, tmp_path: Path) -> None:
    """The kernel takes 107 bytes; the message names the path and the limit."""
    path = tmp_path / ("x" * 120)

    async def main() -> None:
        with pytest.raises(ConfigError, match="107"):
            await listen(f"unix://{path}", echo)
        with pytest.raises(ConfigError, match="107"):
            await connect(f"unix://{path}")

    run(main())


def test_a_file_left_by_a_killed_listener_is_replaced(run: Run, tmp_path: Path) -> None:
    """A restart needs no hand; a listener that lives is not robbed."""
    path = tmp_path / "s"
    program = f"""
import asyncio, os
from forebay.transport import listen
async def main():
    await listen("unix://{path}", print)
    os._exit(0)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert path.is_socket()

    async def main() -> None:
        async with listen(f"unix://{path}", echo):
            with pytest.raises(ConfigError, match="in use"):
                await listen(f"unix://{path}", echo)
            async with connect(f"unix://{path}") as connection:
                await connection.send(b"x")
                assert await connection.recv() == [b"x"]

    run(main())


FULL_TABLE = """
import asyncio, json, os, resource, socket, sys, time
from forebay.transport import connect, listen, native

async def echo(connection):
    async for message in connection:
        await connection.send(message)

async def main(kind):
    options = {"native": native.Echo()} if kind == "native" else {"handler": echo}
    async with listen("tcp://127.0.0.1:0", **options) as listener:
        host, port = listener.url.removeprefix("tcp://").split(":")
        clients = []
        for _ in range(40):
            client = socket.socket()
            client.setblocking(False)
            clients.append(client)
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(10)]
        used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
        for client in clients:
            client.connect_ex((host, int(port)))
        await asyncio.sleep(0.15)
        begun = time.process_time()
        await asyncio.sleep(0.5)
        spent = time.process_time() - begun
        for client in clients:
            client.close()
        for descriptor in held:
            os.close(descriptor)
        async with connect(listener.url, timeout=20) as connection:
            await connection.send(b"x")
            answer = await connection.recv()
        print(json.dumps({"spent": spent, "answer": bytes(answer[0]).decode()}))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("kind", ["python", "native"])
def test_a_listener_without_descriptors_pauses_and_comes_back(kind: str) -> None:
    """It neither spins nor ends: peers are turned away, and served again later."""
    ended = subprocess.run(
        [sys.executable, "-c", FULL_TABLE, kind], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["answer"] == "x"
    assert told["spent"] < 0.25, f"{told['spent']:.2f} s of 0.5 s spent on accepting nobody"


@pytest.mark.parametrize(
    "greeting",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 4],
    ids=["HTTP", "TLS"],
)
def test_another_protocol_is_told_by_name_and_offset(
    run: Run,
    greeting: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A scanner costs a line in the log, and the listener goes on."""

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", echo) as listener:
            with dialled(listener.url) as raw:
                raw.sendall(greeting)
                with contextlib.suppress(ConnectionError):
                    await asyncio.to_thread(read_all, raw)
            await until(lambda: listener.connections == 0)
            async with connect(listener.url) as connection:
                await connection.send(b"x")
                assert await connection.recv() == [b"x"]

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert "not a Forebay peer" in caplog.text
    assert "at byte" in caplog.text


def test_a_reset_at_each_byte_of_a_socket_loses_nothing_whole(run: Run) -> None:
    """A peer over TCP resets within a message: what came before is whole, it is never seen."""
    first, struck = message(b"1234"), message(b"5678", b"9")
    came: list[list[list[bytes]]] = []
    ended: list[BaseException] = []

    async def handler(connection: AsyncConnection) -> None:
        came.append([])
        try:
            while True:
                came[-1].append([bytes(frame) for frame in await connection.recv()])
        except Exception as error:
            ended.append(error)

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", handler, token="secret") as listener:
            for at in range(len(struck)):
                with dialled(listener.url) as raw:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    raw.sendall(preface() + token(b"secret") + first)
                    await until(lambda count=at + 1: len(came) == count and came[-1] != [])
                    raw.sendall(struck[:at])
                await until(lambda count=at + 1: len(ended) == count)

    run(main())
    assert came == [[[b"1234"]]] * len(struck)
    assert [type(error) for error in ended] == [BrokenError] * len(struck)
