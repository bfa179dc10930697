"""What is refused while another thread looks at the same connection."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.rpc.conftest import ROOT

WATCHED = """
import socket, struct, sys, threading
from forebay._core import Connection, ItemReader
from forebay.errors import LimitError

SERVES, LIMIT, CALL = sys.argv[1] == "reply", 1 << 16, 1
peer, ours = socket.socketpair()
preface = struct.pack("<HBBQQHHI", 1, 1 if SERVES else 2, 0, 1, LIMIT, 1024, 0, 0)
peer.sendall(b"FBAY" + preface)  # of one who takes no more than 64 KiB at once
if SERVES:
    peer.sendall(struct.pack("<IBBHQII", 0, CALL, 0, 0, 1, 0xFFFFFFFF, 0))
connection = Connection(ours.detach(), server=SERVES)
if SERVES:
    assert connection.next_call(20)[0] == 1
else:
    connection.handshake(20)

long = bytearray(2 << 20)  # so long that it is sent without the GIL
send = {
    "start": lambda: connection.start(0, b"", [long], None, 0),
    "start_stream": lambda: ItemReader(connection, 0, b"", [long], None, 0, 1, True),
    "reply": lambda: connection.reply(1, 0, b"", [long]),
}[sys.argv[1]]
done = False

def look():
    while not done:
        connection.outbox_bytes

sys.setswitchinterval(1e-4)
looker = threading.Thread(target=look)
looker.start()
for _ in range(200):
    try:
        send()
    except LimitError:
        pass
    else:
        raise AssertionError("it was not refused")
done = True
looker.join()
long.append(1)  # nobody holds it any more
"""


@pytest.mark.parametrize("what", ["start", "start_stream", "reply"])
def test_a_refused_buffer_never_stops_a_program_of_two_threads(what: str) -> None:
    """One thread gave the buffer back under the lock, the other had the GIL and wanted the lock."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, what],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert done.returncode == 0, done.stderr
