"""Record the conversations of this version: `python -m tests.executor.compat.record DIRECTORY`.

A protocol's transcripts are recorded once, by the version that has it, and never again: they are
what its clients and servers said. A later protocol has a directory of its own.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forebay import _core
from forebay.executor import AsyncClient, Client
from forebay.rpc import Channel
from tests.executor.compat.scenes import (
    APP,
    FILE_BYTES_MIN,
    OF_A_STRANGER,
    OF_THE_CLIENT,
    OF_THE_LOOP,
)
from tests.executor.compat.transcript import REPLY, Piece, Splitter, Transcript
from tests.executor.serving import Serving

ROOT_PREFIX = "fb-compat-"
"""Of a directory in /tmp: its name has the same length each time, so that paths may be replaced."""


def root() -> Path:
    """A directory for an application and its server's state."""
    return Path(tempfile.mkdtemp(prefix=ROOT_PREFIX, dir="/tmp"))


def serving(directory: Path) -> Serving:
    """The server that the scenes talk to."""
    return Serving(directory, APP, max_result_bytes=FILE_BYTES_MIN)


class Relay:
    """Passes the bytes of one connection on, and writes them down in their order."""

    def __init__(self, server: str, transcript: Transcript) -> None:
        self.path = f"{transcript.root}/relay"
        self._server = server
        self._transcript = transcript
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._relay)
        self._thread.start()

    def close(self) -> None:
        """Wait until both ends have left."""
        self._thread.join()
        self._listener.close()
        Path(self.path).unlink()

    def _relay(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        back = threading.Thread(target=self._pass, args=(server, client, False))
        back.start()
        self._pass(client, server, True)
        back.join()
        client.close()
        server.close()

    def _pass(self, source: socket.socket, sink: socket.socket, client: bool) -> None:
        splitter = Splitter(client=client)
        while data := source.recv(1 << 16):
            with self._lock:
                for piece in splitter.feed(data):
                    self._keep_file(piece)
                    self._transcript.pieces.append(piece)
                sink.sendall(data)
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it has left

    def _keep_file(self, piece: Piece) -> None:
        """Keep the file that an answer names, which its client reads."""
        if piece.client or piece.kind != REPLY or not isinstance(piece.head, list):
            return
        named = piece.head[-1] if len(piece.head) == 4 else None
        if isinstance(named, list):
            path = named[0].decode()
            self._transcript.files[path] = Path(path).read_bytes()


@contextmanager
def recorded(path: Path, server: Serving) -> Iterator[tuple[Transcript, str]]:
    """A transcript, and the address at which a client is written down in it."""
    transcript = Transcript(str(server.file.parent))
    relay = Relay(server.socket, transcript)
    yield transcript, relay.path
    relay.close()
    transcript.write(path)


def _with_client(scene: Callable[[Client], Any], path: str) -> Any:
    with Client(f"unix://{path}", timeout=30.0) as client:
        return scene(client)


def _on_loop(scene: Callable[[AsyncClient], Any], path: str) -> Any:
    return scene(AsyncClient(f"unix://{path}", timeout=30.0))


def _plain(scene: Callable[[Channel], Any], path: str) -> Any:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(path)
    connection = _core.Connection(connected.detach(), by_reference=False)
    channel = Channel(connection, codec="msgpack")
    try:
        return scene(channel)
    finally:
        channel.close()


def main() -> None:
    """Record every scene, each with a server of its own."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for scenes, play in (
        (OF_THE_CLIENT, _with_client),
        (OF_THE_LOOP, _on_loop),
        (OF_A_STRANGER, _plain),
    ):
        for name, scene in scenes.items():
            with (
                serving(root()) as server,
                recorded(directory / f"{name}.txt", server) as (transcript, path),
            ):
                transcript.seen = play(scene, path)  # type: ignore[operator]


if __name__ == "__main__":
    main()
