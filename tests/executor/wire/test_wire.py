"""What a client takes from a server."""

from __future__ import annotations

import pickle
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from forebay._core import Connection
from forebay.errors import ProtocolError
from forebay.executor.wire.frames import Answers

PICKLE = 1


class Touch:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("way", ["reply", "fail"])
def test_a_pickle_of_a_servers_is_never_opened(tmp_path: Path, way: str) -> None:
    """It may be another user's, and would run what it likes here."""
    ours, theirs = socket.socketpair()
    server = Connection(theirs.detach(), server=True, peer="client")
    path = tmp_path / "touched"

    def serve() -> None:
        call = server.next_call(20.0)
        getattr(server, way)(call[0], PICKLE, pickle.dumps(Touch(path)))
        server.drain()

    serving = threading.Thread(target=serve)
    serving.start()
    client = Answers(Connection(ours.detach(), peer="server"), "server")
    with pytest.raises(ProtocolError, match="server answered in codec 1"):
        client.call("info", (), timeout=20.0)
    serving.join()
    client.close()
    server.close()
    assert not path.exists()
