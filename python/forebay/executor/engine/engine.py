"""What runs the workers of a server on other machines, found by its name among entry points."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from forebay.errors import ClosedError, ConfigError
from forebay.executor.app.options import LANES
from forebay.executor.engine.group import NodeGroup
from forebay.executor.engine.order import Order, Place
from forebay.executor.engine.stand_in import StandIn

if TYPE_CHECKING:
    from forebay._core import Dispatcher
    from forebay.config import ExecutorConfig, PoolConfig
    from forebay.executor.app.target import Target
    from forebay.executor.server.worker_group import WorkerGroup
    from forebay.pool import Spec

__all__ = ["GROUP", "Capacity", "Cluster", "Engine", "find_engine"]

GROUP: Final = "forebay.engines"
"""The entry points: each loads a callable that takes a configuration, the path of a socket where
stand-ins ask for nodes, and a receiver of warnings, and returns an `Engine`."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a cluster has.

    Attributes:
        text: what it is, for people.
        is_here: whether its nodes share the memory of this machine.
        memory_bytes: of all nodes; None: it is not known.
        threads: that may have a worker each; 0: it has no nodes yet.
    """

    text: str
    is_here: bool
    memory_bytes: int | None
    threads: int


class Engine(Protocol):
    """A cluster, from `start` until `close`."""

    def start(
        self, changed: Callable[[Capacity], None], is_asked_to_stop: Callable[[], bool]
    ) -> Capacity | None:
        """Connect to it, or start it; None: somebody asked to stop meanwhile.

        Args:
            changed: gets what it has when it has grown, or lost nodes; in a thread of its own.
            is_asked_to_stop: looked at ten times a second.

        Raises:
            ConfigError, BrokenError: it cannot be used; the message says what to do.
        """

    def place(self) -> Place:
        """Where stand-ins wait for nodes."""

    def close(self) -> None:
        """Let go of it; what this has started ends. Idempotent."""


NewEngine = Callable[["ExecutorConfig", Path, Callable[[str], None]], Engine]


def find_engine(name: str) -> NewEngine:
    """What makes the engine of a name.

    Raises:
        ConfigError: no installed package has it.
    """
    found = {it.name: it for it in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(
            f"there is no engine {name!r} (installed: {known}); pip install 'forebay[dask]' has"
            " the engine dask"
        )
    try:
        new: NewEngine = found[name].load()
    except ImportError as error:
        raise ConfigError(
            f"the engine {name!r} cannot be loaded: {error}; pip install 'forebay[{name}]'"
        ) from error
    return new


class Cluster:
    """The engine of one server, started, and how its workers are made there.

    Args:
        config: names the engine.
        target: the application.
        pool: of the lenders of the nodes.
        socket: where stand-ins ask for nodes; its directory is private.
        warn: gets what people have to know, from any thread.

    Raises:
        ConfigError: as `find_engine`.
    """

    def __init__(
        self,
        config: ExecutorConfig,
        target: Target,
        pool: PoolConfig,
        socket: Path,
        warn: Callable[[str], None],
    ) -> None:
        self._config = config
        self._engine = find_engine(config.engine)(config, socket, warn)
        self._target = target
        self._pool = pool
        self._lock = threading.Lock()
        """Held while the capacity, or who dispatches for it, is another."""
        self._dispatcher: Dispatcher | None = None
        self._capacity: Capacity

    def start(self, is_asked_to_stop: Callable[[], bool]) -> bool:
        """Have the engine start; False: somebody asked to stop meanwhile.

        Raises:
            ConfigError, BrokenError: as `Engine.start`.
        """
        capacity = self._engine.start(self._changed, is_asked_to_stop)
        if capacity is None:
            return False
        with self._lock:
            self._capacity = capacity
        return True

    def spec(self) -> Spec[Any]:
        """A stand-in."""
        target = self._target
        return StandIn.spec(target.kind, target.where, target.attribute, target.directory)

    def group(self, spec: Spec[Any], start_timeout: float) -> WorkerGroup:
        """The group of a version."""
        target = self._target
        order = Order(
            kind=target.kind,
            target=str(target.where),
            attribute=target.attribute,
            directory=None if target.directory is None else str(target.directory),
            pool=asdict(self._pool),
            start_timeout=start_timeout,
        )
        return NodeGroup(spec, order, self._engine.place, start_timeout=start_timeout)

    def settings(self) -> dict[str, Any]:
        """What of a dispatcher's settings follows from the cluster."""
        return self._sizes() | {"elsewhere": not self._capacity.is_here}

    def attend(self, dispatcher: Dispatcher) -> None:
        """Have it dispatch for what the cluster has, from now on."""
        with self._lock:
            self._dispatcher = dispatcher
            self._adapt()

    def _changed(self, capacity: Capacity) -> None:
        with self._lock:
            self._capacity = capacity
            self._adapt()

    def _adapt(self) -> None:
        if self._dispatcher is not None:
            with contextlib.suppress(ClosedError):  # its server ends
                self._dispatcher.set_capacity(**self._sizes())

    def _sizes(self) -> dict[str, Any]:
        """Those settings that change with it."""
        config, capacity = self._config, self._capacity
        threads = capacity.threads or config.max_workers  # without nodes they come later
        sizes: dict[str, Any] = {
            "workers_max": min(config.max_workers or threads, threads),
            "guaranteed": [config.short_workers, config.long_workers, 0],
        }
        if 0 < threads < len(LANES):
            # Else idle workers of one lane keep another one from starting.
            sizes["guaranteed"] = [0, 0, 0]
        if not capacity.is_here:
            if capacity.threads:
                sizes["cores_milli"] = 1000 * capacity.threads
            sizes["memory_limit"] = config.max_memory or capacity.memory_bytes
        return sizes

    def facts(self) -> dict[str, Any]:
        """What it is, for people."""
        return {"cluster": self._capacity.text}

    def close(self) -> None:
        """Let go of the cluster. Idempotent."""
        self._engine.close()
