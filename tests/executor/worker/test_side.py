"""A worker's way to the server's side socket."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from forebay.executor.worker import side
from forebay.executor.worker.side import HELLO_BYTES, Side


def test_a_socket_that_a_clean_up_has_removed_is_waited_for(tmp_path: Path) -> None:
    """The first run is handed over before the worker connects: it would end with the worker."""
    path = tmp_path / "side.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def listen() -> None:
        time.sleep(0.2)
        listener.bind(str(path))
        listener.listen()

    making = threading.Thread(target=listen)
    making.start()
    reading, writing = os.pipe()
    try:
        connected = Side.connect(str(path), 3, 7, reading)
        accepted, _ = listener.accept()
        with accepted:
            hello, [output], _, _ = socket.recv_fds(accepted, 100, 1)
        os.close(output)
        connected.close()
    finally:
        making.join()
        listener.close()
        os.close(reading)
        os.close(writing)
    assert len(hello) == HELLO_BYTES


def test_a_server_that_has_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the path, once it has not come back."""
    monkeypatch.setattr(side, "REMADE_S", 0.1)
    with pytest.raises(FileNotFoundError, match=r"nobody\.sock"):
        Side.connect(str(tmp_path / "nobody.sock"), 3, 7, 0)
