"""A server that somebody else has started, and allowed to be struck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.errors import ConfigError
from forebay.executor import Client
from forebay.testing import _process
from forebay.testing.experiment.struck import ServerProcesses

__all__ = ["Attached"]


class Attached:
    """The server of an application that runs already.

    Args:
        target: the application.

    Raises:
        BrokenError: none runs.
        ConfigError: it was started without `--allow-chaos`.

    Attributes:
        port: None: nothing is submitted over HTTP, since the gateway is somebody else's.
        no_gateway: None: whether there is one is seen when it is to be struck.
        socket: where it listens.
        processes: what can be struck.
    """

    port = None
    no_gateway = None

    def __init__(self, target: str) -> None:
        with Client(app=target, start=False) as client:
            facts: dict[str, Any] = client.info()
        if not facts.get("allows_chaos"):
            raise ConfigError(
                f"the server of {target} in process {facts['pid']} was started without"
                " --allow-chaos and is left alone; start one that may be struck:"
                f" forebay serve {target} --allow-chaos"
            )
        self.socket = Path(facts["socket"])
        self.state = Path(facts["state_dir"])
        self._found = _process.described(facts["pid"], "server")
        self._is_told = False
        self.processes = ServerProcesses(lambda: self.pid, lambda: self.socket, lambda: True)

    @property
    def pid(self) -> int | None:
        """Of the server; None: it has ended."""
        found = self._found
        if found is None or _process.described(found.pid, found.kind) != found:
            return None
        return found.pid

    def start(self, look: Callable[[], None]) -> None:
        """It runs."""

    def start_again(self) -> None:
        """Whoever started it may do so."""

    def unexpected_end(self) -> str | None:
        """That it has ended, once."""
        if self._is_told:
            return None
        self._is_told = True
        return "the server has ended by itself"

    def end(self) -> int | None:
        """It goes on."""
        return None

    def end_soon(self) -> None:
        """It goes on."""

    def tail(self) -> str:
        """What it writes, its owner has."""
        return "see its log"
