"""A real gateway with TLS in front of the socket of a server, in a process of its own."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from pathlib import Path
from typing import Any

from forebay.config import GatewayConfig
from forebay.executor._internal import TOKENS
from forebay.gateway._internal import GatewayProcess, Role, Settings, add_token
from tests.transport.certificates import Authority

START_S = 20.0


class TlsGateway:
    """Answers until `close`, whatever becomes of the server behind it.

    Args:
        directory: of its own.
        server: the socket of the server, which need not be there yet.
    """

    def __init__(self, directory: Path, server: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.state = directory / "state"
        self.state.mkdir(mode=0o700)
        _, self.token = add_token(self.state / TOKENS, "tests", Role.ADMIN)
        signed = self.authority.sign("gateway")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"https://localhost:{self.port}"
        config = GatewayConfig()
        settings = Settings(
            server=f"unix://{server}",
            state_dir=str(self.state),
            host="127.0.0.1",
            port=self.port,
            tls_cert=str(signed.cert),
            tls_key=str(signed.key),
            max_connections=config.max_connections,
            max_connections_per_address=config.max_connections_per_address,
            max_body_bytes=config.max_body_bytes,
        )
        self._process = GatewayProcess(
            settings, self._listener, started=self._note, warn=lambda text: None
        )
        self.pid = 0

    def start(self) -> None:
        """Start it, and return when it answers."""
        self._process.start()
        context = ssl.create_default_context(cafile=self.authority.ca)
        deadline = time.monotonic() + START_S
        while True:
            connection = http.client.HTTPSConnection(
                "localhost", self.port, timeout=START_S, context=context
            )
            try:
                connection.request("GET", "/healthz")
                assert connection.getresponse().status == 200
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return
            finally:
                connection.close()

    def close(self) -> None:
        """End it."""
        self._process.close()
        self._listener.close()

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of a client of it, beside the URL."""
        return {"token": self.token, "ca_file": str(self.authority.ca)}

    def _note(self, pid: int) -> None:
        self.pid = pid
