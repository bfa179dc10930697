"""Connecting in time, whatever a host's name stands for."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from forebay import rpc
from forebay.errors import BrokenError, DeadlineError

HOLES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which the addresses of `HOLES` answer nobody: their queues are full."""
    with contextlib.ExitStack() as sockets:
        port = 0
        for host in HOLES:
            listening = sockets.enter_context(socket.socket())
            listening.bind((host, port))
            listening.listen(0)
            port = listening.getsockname()[1]
            for _ in range(4):
                waiting = sockets.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex((host, port))
        yield port


def name(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Have every name stand for these addresses."""

    def found(_host: str, port: int, *_more: Any, **_options: Any) -> list[Any]:
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, socket.IPPROTO_TCP, "", (host, port)) for host in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def test_the_timeout_is_that_of_all_addresses_together(
    monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    """A name with many addresses that do not answer takes no longer than one."""
    name(monkeypatch, *HOLES)
    began = time.monotonic()
    with pytest.raises(DeadlineError, match=r"2\.5 s"):
        rpc.connect(f"tcp://many.test:{silent_port}", timeout=2.5).open()
    assert time.monotonic() - began < 5, "one after another they take 7.5 s"


def test_an_address_that_is_silent_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch, silent_port: int
) -> None:
    """Where nobody listens at the last address, that is known before the time is over."""
    name(monkeypatch, HOLES[0], "127.0.0.9")
    with pytest.raises(BrokenError, match="is a server listening") as caught:
        rpc.connect(f"tcp://many.test:{silent_port}", timeout=1.0).open()
    assert caught.value.delivered == "no"


def test_looking_a_name_up_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that does not answer holds no caller longer than it said."""
    asked, done = threading.Event(), threading.Event()

    def hangs(*_arguments: Any, **_options: Any) -> list[Any]:
        asked.set()
        done.wait(5)
        raise socket.gaierror(socket.EAI_AGAIN, "no name server")

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    try:
        with pytest.raises(DeadlineError, match=r"slow\.test"):
            rpc.connect("tcp://slow.test:1", timeout=0.1).open()
        assert asked.is_set()
    finally:
        done.set()
