"""An HTTP proxy that connects."""

from __future__ import annotations

import select
import socket
import threading

from tests.client.scripted_server import Received, answer, read_request


class Tunnel:
    """An HTTP proxy that knows CONNECT."""

    def __init__(self) -> None:
        self.asked: list[Received] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with near:
                self._relay(near)

    def _relay(self, near: socket.socket) -> None:
        asked = read_request(near.makefile("rb", buffering=0), 0)
        assert asked is not None
        self.asked.append(asked)
        host, _, port = asked.target.partition(":")
        if host == "refused.example":
            near.sendall(answer(403, b"no"))
            return
        with socket.create_connection((host, int(port))) as far:
            near.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            while True:
                for one in select.select([near, far], [], [])[0]:
                    data = one.recv(65536)
                    if not data:
                        return
                    (far if one is near else near).sendall(data)
