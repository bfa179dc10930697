"""What a node tells its stand-in: the test is the stand-in."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import pytest

from forebay.config import PoolConfig
from forebay.errors import BrokenError
from forebay.executor.app.target import parse_target
from forebay.executor.engine import task
from forebay.executor.engine.link import (
    _HEAD,
    DIED,
    FAILED,
    OUTPUT,
    PING,
    READY,
    SECRET_BYTES,
    Link,
    Record,
)
from forebay.executor.engine.node import Node
from forebay.executor.engine.order import Order
from forebay.executor.engine.task import _NodeLink, _send_last, run_worker
from tests.executor.engine.cluster import strike
from tests.executor.engine.proving import proved
from tests.executor.serving import descendants, until, wait_gone

APP = (Path(__file__).parent / "failures_app.py").read_text()
PATIENCE_S = 20.0
SLICE_BYTES = 1 << 16


def no_tls() -> NoReturn:
    """The links of these tests have none."""
    raise AssertionError("TLS")


class StandIn:
    """Waits for a node, which runs in a thread of the test.

    Args:
        folder: of the application, and for what the node keeps on its disk.

    Attributes:
        file: the application.
        order: what the node is told.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "app.py"
        self.file.write_text(APP)
        self._scratch = folder
        self._secret = os.urandom(SECRET_BYTES)
        self._listener = socket.create_server(("127.0.0.1", 0))
        target = parse_target(str(self.file))
        self.order = Order(
            target.kind,
            str(target.where),
            target.attribute,
            None if target.directory is None else str(target.directory),
            pool=asdict(PoolConfig()),
            host="127.0.0.1",
            port=self._listener.getsockname()[1],
            secret=self._secret.hex(),
            silence=5.0,
        )
        self.returned: list[str | None] = []
        self._thread: threading.Thread | None = None

    def run(self, **changed: Any) -> None:
        """Have the node do what is ordered."""
        told = self.order.told() | changed
        self.returned.append(run_worker(told, no_tls, lambda: None, str(self._scratch)))

    def accept(self) -> tuple[socket.socket, Link]:
        """Order it, and the link to the node that comes."""
        self._thread = threading.Thread(target=self.run)
        self._thread.start()
        self._listener.settimeout(PATIENCE_S)
        connected, _ = self._listener.accept()
        assert proved(connected, self._secret)
        return connected, Link(connected, "the node", PATIENCE_S)

    def over(self) -> str | None:
        """What the task has returned."""
        assert self._thread is not None
        self._thread.join(PATIENCE_S)
        return self.returned[-1]

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """One whose node is new."""
    node = Node()
    monkeypatch.setattr(Node, "_of_process", node)
    made = StandIn(tmp_path)
    yield made
    made.close()
    node.close()


def heard(link: Link) -> Record:
    """The next record of the node."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        select.select((link,), (), (), 0.1)
        for record in link.take():
            return record
        link.keep_alive()
    raise AssertionError("the node says nothing")


@pytest.mark.parametrize("changed", [{"version": "0.0.1"}, {"protocol": 0, "added": 1}])
def test_an_order_of_another_version_is_refused(stand_in: StandIn, changed: dict[str, Any]) -> None:
    """With both; a field that moved would be another one's value."""
    stand_in.run(**changed)
    (reason,) = stand_in.returned
    assert reason is not None
    assert f"has forebay {version('forebay')} (protocol 1)" in reason
    theirs = changed.get("version", version("forebay"))
    assert f"server has forebay {theirs} (protocol {changed.get('protocol', 1)})" in reason


def test_what_is_no_record_is_told(stand_in: StandIn) -> None:
    """It is no loss of the link, which would be tried again for ever."""
    connected, link = stand_in.accept()
    connected.sendall(_HEAD.pack(0, 99, 0))
    kind, _, body = heard(link)
    assert kind == FAILED
    assert b"a record of kind 99" in body
    link.close()
    assert stand_in.over() is None


def test_a_keeper_that_ends_is_told(stand_in: StandIn, tmp_path: Path) -> None:
    """It takes the template with it, while that imports the application; the next try has both."""
    before = set(descendants(os.getpid()))
    begun = tmp_path / "begun"
    waits = f"open({str(begun)!r}, 'x').close()\ntime.sleep(60)\n"
    stand_in.file.write_text(f"{APP}\n{waits}")
    _, link = stand_in.accept()
    until(begun.exists, PATIENCE_S)
    for pid in set(descendants(os.getpid())) - before:
        strike(pid, signal.SIGKILL)
    kind, _, body = heard(link)
    link.close()
    assert kind == FAILED
    assert b"keeper" in body
    assert stand_in.over() is None
    stand_in.file.write_text(APP)
    _, link = stand_in.accept()
    kind, *_ = heard(link)
    link.close()
    assert kind == READY
    assert stand_in.over() is None


def test_a_stand_in_that_leaves_is_not_told(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker ends, and nothing is logged."""
    _, link = stand_in.accept()
    worker = json.loads(heard(link)[2])["pid"]
    link.close()
    assert stand_in.over() is None
    wait_gone(worker)
    assert not caplog.records


def test_last_records_arrive_over_a_slow_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes, if it goes on: an exit would be taken for a lost node."""
    monkeypatch.setattr(task, "LAST_S", 0.1)
    near, far = socket.socketpair()
    link = _NodeLink(near, "the server", 1.0)
    link.put(OUTPUT, 0, bytes(3 << 20))
    sends = threading.Thread(target=_send_last, args=(link, DIED, b"how"))
    sends.start()
    began, got = time.monotonic(), b""
    with far:
        while not got.endswith(b"how"):
            far.sendall(_HEAD.pack(0, PING, 0))
            data = far.recv(SLICE_BYTES)
            assert data, f"{len(got)} bytes after {time.monotonic() - began:.1f} s"
            got += data
            time.sleep(0.04)
    assert time.monotonic() - began > 1.0, "it is not slow"
    sends.join(PATIENCE_S)
    link.close()


@pytest.mark.parametrize("pings", [True, False])
def test_nobody_waits_for_a_stand_in_that_takes_nothing(pings: bool) -> None:
    """Longer than it may be silent."""
    near, far = socket.socketpair()
    link = _NodeLink(near, "the server", 0.5)
    link.put(OUTPUT, 0, bytes(3 << 20))
    sends = threading.Thread(target=_send_last, args=(link, DIED, b"how"))
    began = time.monotonic()
    sends.start()
    with far:
        while sends.is_alive() and time.monotonic() - began < 5.0:
            if pings:
                far.sendall(_HEAD.pack(0, PING, 0))
            sends.join(0.1)
    assert 0.4 < time.monotonic() - began < 2.0
    sends.join(PATIENCE_S)
    link.close()


def test_a_lost_link_is_told_from_what_else_breaks() -> None:
    """Though both are `BrokenError`."""
    near, far = socket.socketpair()
    link = _NodeLink(near, "the server", 0.5)
    far.close()
    with pytest.raises(task._LinkLostError) as lost:
        list(link.take())
    assert isinstance(lost.value, BrokenError)
    link.close()
