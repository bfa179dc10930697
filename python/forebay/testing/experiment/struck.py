"""The processes of a server that faults strike, by what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from forebay.errors import Error
from forebay.executor import Client
from forebay.testing import _process, chaos
from forebay.testing._targets import Targets

__all__ = ["KINDS", "ServerProcesses"]

ASK_S: Final = 1.0
KINDS: Final = ("worker", "service", "template", "keeper", "server", "gateway")


class ServerProcesses:
    """Finds the processes of a server, which may be another one each time.

    Args:
        pid: of the server that runs; None: none does.
        socket: where it listens.
        is_ready: whether it serves, its gateway too.
    """

    def __init__(
        self,
        pid: Callable[[], int | None],
        socket: Callable[[], Path],
        is_ready: Callable[[], bool],
    ) -> None:
        self._pid = pid
        self._socket = socket
        self._is_ready = is_ready
        self._workers: set[_process.Process] = set()

    def of(self, kind: str, *, is_ready: bool = False) -> Targets:
        """Those of one of `KINDS`; with `is_ready` only of a server that has come to serve."""

        def find() -> Iterable[_process.Process | None]:
            pid = self._pid()
            if pid is None or (is_ready and not self._is_ready()):
                return []
            return self._found(kind, pid)

        return Targets(find)

    def _found(self, kind: str, pid: int) -> Iterable[_process.Process | None]:
        match kind:
            case "server":
                return [_process.described(pid, kind)]
            case "gateway":
                return [_process.described(one, kind) for one in _gateways(pid)]
            case "keeper":
                return chaos.keeper(pid).now()
            case "template":
                return chaos.templates(pid).now()
        # A worker is a service too; the server alone knows which of them it has for requests.
        workers = self._named_workers()
        services = [_process.described(one.pid, "worker") for one in chaos.services(pid).now()]
        chosen = [one for one in services if (one in workers) == (kind == "worker")]
        return [None if one is None else one._replace(kind=kind) for one in chosen]

    def _named_workers(self) -> set[_process.Process]:
        """Those that the server names; if it does not answer, those that it named last."""
        try:
            with Client(f"unix://{self._socket()}", start=False, timeout=ASK_S) as client:
                told = client.ask("workers", timeout=ASK_S)["workers"]
        except Error:
            return self._workers
        found = {_process.described(it["pid"], "worker") for it in told if it.get("pid")}
        self._workers = {worker for worker in found if worker is not None}
        return self._workers


def _gateways(pid: int) -> list[int]:
    return [
        child
        for child in _process.children(pid)
        if "forebay.gateway" in _process.text(f"/proc/{child}/cmdline")
    ]
