"""A dispatcher with a store, workers of the test application, and clients of its socket."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
from forebay import _core, rpc
from forebay.executor.wire.codec import decode, encode
from forebay.executor.worker.worker import Worker
from tests.executor.server.calling import Supervisor
from tests.executor.worker.supervising import APP

SETTINGS: dict[str, Any] = {
    "workers_max": 4,
    "guaranteed": (1, 1, 0),
    "burst_run_ms_min": 0,
    "worker_idle_ms": 3_600_000,
    "cores_milli": 2_000,
    "exception_ms": 1_000,
    "terminate_ms": 500,
}


class AppSupervisor(Supervisor):
    """Starts workers of the application."""

    def __init__(
        self, dispatcher: _core.Dispatcher, pool: forebay.ServicePool, side_path: str
    ) -> None:
        self.side_path = side_path
        super().__init__(dispatcher, pool)

    def recruit(self, slot: int, lane: str, nonce: int) -> tuple[Any, tuple[Any, ...]]:
        """A worker that connects the side socket."""
        return Worker.spec("path", str(APP)), (slot, lane, self.side_path, nonce, {})


class Caller:
    """A client that says what stands on the wire."""

    def __init__(self, path: Path) -> None:
        self.channel = rpc.connect(f"unix://{path}").open()

    def ask(self, method: str, *arguments: Any, timeout: float = 20.0) -> list[Any]:
        """The values of an answer, or a Refused."""
        answer = self.channel.call(method, arguments, timeout=timeout)
        if answer[0]:
            raise RefusedError(answer[1])
        return list(answer[1:])

    def submit(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        """The id of a request that is on disk."""
        (id,) = self.ask("submit", name, encode(arguments or {}), options or None, None)
        return str(id)

    def wait(self, id: str) -> tuple[str, Any]:
        """Status, and result or failure."""
        return ended(self.ask("wait", id))

    def run(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
        """Submit and wait: status, and result or failure."""
        return ended(self.ask("run", name, encode(arguments or {}), options or None, None))

    def follow(self, method: str, *arguments: Any) -> Any:
        """The items of a stream."""
        return self.channel.stream(method, arguments, timeout=20.0)

    def close(self) -> None:
        """Leave."""
        self.channel.close()


class RefusedError(Exception):
    """A refusal, with its map."""

    def __init__(self, told: dict[str, str]) -> None:
        super().__init__(told["message"])
        self.told = told


def ended(answer: list[Any]) -> tuple[str, Any]:
    """Status, and result or failure."""
    _, status, payload = answer
    return status, decode(payload) if status == "succeeded" else json.loads(payload)


@contextlib.contextmanager
def dispatching(
    directory: Path, **settings: Any
) -> Iterator[tuple[_core.Dispatcher, AppSupervisor]]:
    """A dispatcher over `directory`, which a later one finds as this one leaves it."""
    paths = {
        "state_dir": str(directory / "state"),
        "socket": str(directory / "run" / "s"),
        "side_socket": str(directory / "run" / "side"),
    }
    (directory / "run").mkdir(mode=0o700, exist_ok=True)
    dispatcher = _core.Dispatcher({**SETTINGS, **paths, **settings})
    with forebay.ServicePool(max_size=8, name="workers") as pool:
        supervisor = AppSupervisor(dispatcher, pool, paths["side_socket"])
        try:
            with pool.acquire(Worker.spec("path", str(APP))) as worker:
                dispatcher.install(worker.manifest())
            yield dispatcher, supervisor
        finally:
            dispatcher.close()
            supervisor.join()


@contextlib.contextmanager
def calling(directory: Path) -> Iterator[Caller]:
    """A client of the dispatcher over `directory`."""
    caller = Caller(directory / "run" / "s")
    try:
        yield caller
    finally:
        caller.close()
