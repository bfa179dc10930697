"""Peers that break the protocol: a connection refuses them, names them, and stays bounded."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from forebay._core import Connection, connect_unix
from forebay.errors import BrokenError, ClosedError, ProtocolError
from tests.other_user import NOBODY, let_others_reach, needs_root

CALL, REPLY, PICKLE = 1, 2, 1
RUNTIME = sys.version_info[0] << 8 | sys.version_info[1]


def preface(
    *, magic: bytes = b"FBAY", version: int = 1, role: int = 1, frame_bytes_max: int = 1 << 30
) -> bytes:
    text = struct.pack("<HBBQQHHI", version, role, 0, 0, frame_bytes_max, 1024, 0, RUNTIME)
    return magic + text


def header(kind: int, call: int, head: int = 0, segments: int = 0, flags: int = 0) -> bytes:
    return struct.pack("<IBBHQII", head, kind, flags, segments, call, 0xFFFFFFFF, 0)


def server_and_peer() -> tuple[Connection, socket.socket]:
    ours, theirs = socket.socketpair()
    return Connection(ours.detach(), server=True, peer="the tester"), theirs


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "not a Forebay peer"),
        (preface(version=9), "version 9"),
        (preface(role=7), "role"),
        (preface(frame_bytes_max=0), "frame_bytes_max of 0 is below"),
        (preface() + header(CALL, 1) * 2, "call 1 arrived again"),
        (preface() + header(99, 1), "kind 99"),
        (preface() + header(8, 1), "kind 8"),
        (preface() + header(CALL, 1, flags=0x40), "flags"),
        (preface() + header(CALL, 1, head=0xFFFFFFFF), "frame_bytes_max"),
        (preface() + header(CALL, 1, segments=1) + struct.pack("<Q", 1 << 60), "frame_bytes_max"),
        (
            preface() + header(CALL, 1, segments=2) + struct.pack("<QQ", 1 << 30, 1),
            "frame_bytes_max",
        ),
        (preface() + header(CALL, 1, segments=1025), "segments_max"),
    ],
)
def test_broken_streams_are_refused_with_peer_and_offset(stream: bytes, message: str) -> None:
    """The log says who sent what; no memory is obtained for a claimed length."""
    connection, peer = server_and_peer()
    with peer:
        peer.sendall(stream)
        with pytest.raises(ProtocolError, match=message) as caught:
            connection.next_call(20)
        assert caught.value.peer == "the tester"
        assert caught.value.offset is not None
        assert 0 < caught.value.offset <= len(stream)
        assert peer.recv(100)[:4] == b"FBAY"
        assert peer.recv(100) == b"", "the connection is shut"
    connection.close()


@pytest.mark.parametrize("cut", [0, 1, 31, 32, 33, 55, 56, 60])
def test_a_stream_cut_anywhere_ends_serving(cut: int) -> None:
    """A caller that dies in the middle of a frame does not bring the service down."""
    connection, peer = server_and_peer()
    peer.sendall((preface() + header(CALL, 1, head=10) + b"0123456789")[:cut])
    peer.close()
    assert connection.next_call(20) is None


def test_a_caller_refuses_calls() -> None:
    """A service cannot make its client run anything."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours.detach(), peer="service")
    with theirs:
        theirs.sendall(preface(role=2) + header(CALL, 1))
        with pytest.raises(ProtocolError, match="does not serve"):
            connection.call(PICKLE, b"", None, 20.0, 0)


def test_a_failure_that_could_not_be_described_says_so() -> None:
    """The caller learns that its call may have run, and why it is told no more."""
    ours, peer = socket.socketpair()
    caller = Connection(ours.detach(), peer="service")
    with peer:
        undescribed = struct.pack("<IBBHQII", 0, 3, 0, 0, 1, 5, 0)
        peer.sendall(preface(role=2) + undescribed)
        with pytest.raises(BrokenError, match=r"service: .*frame_bytes_max") as caught:
            caller.call(0, b"", None, 20, 0)
        assert caught.value.delivered == "maybe"
    caller.close()


def test_unasked_replies_are_dropped_and_counted() -> None:
    """A late or invented reply reaches nobody."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours.detach())
    with theirs:
        theirs.sendall(preface(role=2) + header(REPLY, 77) + header(REPLY, 1, head=2) + b"ok")
        assert connection.call(0, b"", None, 20.0, 0) == b"ok"
    assert connection.counters()["late_replies"] == 1


@needs_root
def test_pickle_of_another_user_is_never_loaded(tmp_path: Path) -> None:
    """The kernel says who the peer is; what its frames claim does not count."""
    tmp_path.chmod(0o777)
    let_others_reach(tmp_path)
    path = tmp_path / "s"
    trap = tmp_path / "loaded"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(trap),)

    body = pickle.dumps(Trap())
    stream = preface(role=2) + header(REPLY, 1, head=len(body), flags=PICKLE) + body
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen();"
        "print('ready', flush=True); c = s.accept()[0];"
        "c.sendall(bytes.fromhex(sys.argv[2])); c.recv(9999)"
    )
    interpreter = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if interpreter is None:
        pytest.skip("no interpreter that another user may run; apt-get install python3")
    command = [interpreter, "-c", code, str(path), stream.hex()]
    with subprocess.Popen(command, user=NOBODY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        connection = Connection(connect_unix(path), peer="stranger")
        assert not connection.trusted
        with pytest.raises(ProtocolError, match="pickle is refused"):
            connection.call(0, b"", None, 20.0, 0)
        connection.close()
    assert not trap.exists()


def test_a_closed_connection_says_so() -> None:
    """Use after close is an error, and closing twice is none."""
    connection, peer = server_and_peer()
    with peer:
        connection.close()
        connection.close()
        assert connection.fileno() == -1
        with pytest.raises(ClosedError):
            connection.next_call(1)


def test_a_descriptor_that_is_no_socket_is_refused() -> None:
    """A wrong number is found at once, and is closed."""
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(ValueError, match="stream socket"):
        Connection(read)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


def test_a_peer_that_resets_is_reported_with_delivery() -> None:
    """A caller knows whether its call may have run."""
    ours, theirs = socket.socketpair()
    connection = Connection(ours.detach())
    theirs.close()
    with pytest.raises(BrokenError) as caught:
        connection.call(0, b"", None, 20.0, 0)
    assert caught.value.delivered == "no"
