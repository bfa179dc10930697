"""The protocols of systemd, without a server."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli.service.protocol import Manager, Passed, take_sockets
from forebay.errors import ConfigError
from forebay.gateway._internal import adopt

ME = str(os.getpid())
NO_ONE = "1"


@pytest.fixture
def notify(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(5)
        yield manager


def test_variables_are_read_once(notify: socket.socket) -> None:
    """What is started later must not take them for its own."""
    environment = {
        "NOTIFY_SOCKET": notify.getsockname(),
        "WATCHDOG_USEC": "3000000",
        "WATCHDOG_PID": ME,
        "HOME": "/",
    }
    manager = Manager.take(environment)
    assert environment == {"HOME": "/"}
    assert manager.watchdog_s == 3.0
    manager.ready("one\nREADY=0")
    assert notify.recv(100) == b"READY=1\nSTATUS=one READY=0"
    assert not Manager.take(environment)
    Manager.take(environment).ready()  # there is nobody to tell


def test_a_watchdog_of_another_process_is_none_of_ours(notify: socket.socket) -> None:
    """A wrapper that pings by itself keeps its variables to itself, or tries to."""
    environment = {"NOTIFY_SOCKET": notify.getsockname(), "WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}
    assert Manager.take(environment).watchdog_s is None
    assert not environment


def test_a_manager_that_reads_nothing_holds_nobody_for_long(notify: socket.socket) -> None:
    """A message is dropped rather than waited for."""
    manager = Manager(notify.getsockname())
    notify.setblocking(False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                filler.sendto(b"x", notify.getsockname())
    manager.alive()
    Manager("/nowhere/at/all").alive()


@pytest.mark.parametrize(
    "wrong", [{"NOTIFY_SOCKET": "notify"}, {"NOTIFY_SOCKET": "/n", "WATCHDOG_USEC": "soon"}]
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, str]) -> None:
    """A typo in a unit is not silence."""
    with pytest.raises(ConfigError, match=r"^(NOTIFY_SOCKET|WATCHDOG_USEC)="):
        Manager.take(dict(wrong))


def test_sockets_of_another_process_are_ignored() -> None:
    """LISTEN_PID names who they are for."""
    environment = {"LISTEN_PID": NO_ONE, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}
    assert take_sockets(environment) == []
    assert not environment


@pytest.mark.parametrize(
    ("count", "names", "said"),
    [
        ("two", None, "expected a number"),
        ("9000", None, "at most 64"),
        ("2", "http", "names 1 of 2"),
        ("60", None, "is not open"),
    ],
)
def test_a_wrong_environment_is_named(count: str, names: str | None, said: str) -> None:
    """The variable and its value are in the message."""
    environment = {"LISTEN_PID": ME, "LISTEN_FDS": count}
    if names is not None:
        environment["LISTEN_FDNAMES"] = names
    with pytest.raises(ConfigError, match=said):
        take_sockets(environment)


def test_no_socket_is_none() -> None:
    """A process that systemd gave none."""
    assert take_sockets({"LISTEN_PID": ME, "LISTEN_FDS": "0", "LISTEN_FDNAMES": ""}) == []
    assert Passed(3, "http").name == "http"


def unfit() -> Iterator[tuple[str, int]]:
    """Descriptors that no gateway can accept from."""
    yield "is no socket", os.open("/dev/null", os.O_RDONLY)
    yield "is no TCP socket", socket.socket(socket.AF_UNIX).detach()
    yield "is no stream", socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach()
    yield "does not listen", socket.socket(socket.AF_INET).detach()
    yield "would go in clear", socket.create_server(("0.0.0.0", 0)).detach()


def test_a_wrong_kind_of_socket_is_refused_and_closed() -> None:
    """The message has its number, its name and what to write into the unit."""
    for said, descriptor in unfit():
        with pytest.raises(ConfigError, match=said) as caught:
            adopt(descriptor, "http", encrypted=False, plain=False)
        assert "http" in str(caught.value)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_listener_is_taken_as_it_is() -> None:
    """Its address is found, not asked for again."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    bound = adopt(listener.detach(), "http", encrypted=False, plain=False)
    assert (bound.host, bound.port) == ("127.0.0.1", port)
    bound.listener.close()
