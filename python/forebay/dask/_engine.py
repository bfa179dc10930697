"""The engine of a server on a Dask cluster: starts the agent, and starts it again if it ends.

The agent is a process of its own, so that a server neither imports `distributed` nor waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from forebay.errors import BrokenError, ConfigError
from forebay.executor._internal import Capacity, Certificates, Place

if TYPE_CHECKING:
    from forebay.config import ExecutorConfig

__all__ = ["DaskEngine"]

END_S: Final = 10.0
"""For the agent to let go of the cluster, or to end its own."""

START_S: Final = 90.0
"""For an agent to have the cluster: one that is started here begins a process for each core."""

LOOK_MS: Final = 100
"""Between two looks whether somebody asked to stop."""

PAUSE_S: Final = 1.0
"""Before an agent is started that has ended."""


class DaskEngine:
    """A Dask cluster as the engine of a server.

    Args:
        config: `scheduler` is its address; without one a `LocalCluster` is started.
        socket: where that of the agent is, by another name; its directory is private.
        warn: gets what people have to know, in a thread of its own.
    """

    def __init__(self, config: ExecutorConfig, socket: Path, warn: Callable[[str], None]) -> None:
        self._config = config
        # Of this process alone: a successor that fails with the place leaves it to this server.
        self._socket = socket.with_name(f"{os.getpid()}{socket.suffix}")
        self._warn = warn
        self._agent: subprocess.Popen[bytes] | None = None
        self._changed: Callable[[Capacity], None] = lambda capacity: None
        self._told: dict[str, Any] = {}
        self._lock = threading.Lock()
        """So that no agent is started behind the end."""
        self._closing = threading.Event()
        self._listener: threading.Thread | None = None

    def start(
        self, changed: Callable[[Capacity], None], is_asked_to_stop: Callable[[], bool]
    ) -> Capacity | None:
        """Connect to the cluster, or start one here; None: somebody asked to stop meanwhile.

        Args:
            changed: gets what it has when it has grown, or lost nodes; in a thread of its own.
            is_asked_to_stop: looked at ten times a second.

        Raises:
            ConfigError: it cannot be reached, or `distributed` is missing.
        """
        self._changed = changed
        self._remove_left()
        told = self._begin(is_asked_to_stop)
        if told is None:
            return None
        self._listener = threading.Thread(target=self._listen, name="forebay-engine", daemon=True)
        self._listener.start()
        return self._capacity(told)

    def _capacity(self, size: dict[str, Any]) -> Capacity:
        """What the agent says of the size of the cluster."""
        memory = size["memory_bytes"] or None
        return Capacity(size["text"], self._told["is_here"], memory, size["threads"])

    def place(self) -> Place:
        """Where stand-ins wait for nodes."""
        certificates = self._told["certificates"]
        return Place(
            agent=str(self._socket),
            host=self._told["host"],
            certificates=None if certificates is None else Certificates(**certificates),
            silence=self._config.node_timeout,
        )

    def close(self) -> None:
        """Let go of the cluster; one that was started here ends. Idempotent."""
        with self._lock:
            self._closing.set()
            agent = self._agent
        if agent is not None:
            assert agent.stdin is not None
            with contextlib.suppress(OSError):
                agent.stdin.close()  # at which it ends
            try:
                agent.wait(END_S)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
            self._socket.unlink(missing_ok=True)  # where it could not
        if self._listener is not None:
            self._listener.join()

    def _remove_left(self) -> None:
        """Remove sockets of agents that were killed together with their servers."""
        for left in self._socket.parent.glob(f"*{self._socket.suffix}"):
            if left.stem.isdigit() and not os.path.exists(f"/proc/{left.stem}"):
                left.unlink(missing_ok=True)

    def _begin(self, is_asked_to_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """Start an agent, and wait until it has the cluster; None: somebody asked to stop."""
        config = self._config
        given = {
            "scheduler": config.scheduler,
            "host": config.engine_host,
            "socket": str(self._socket),
        }
        command = [sys.executable, "-m", "forebay.dask._agent", json.dumps(given)]
        with self._lock:
            if self._closing.is_set():
                raise BrokenError("the engine is closed", delivered="no")
            self._agent = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        if not self._await_word(self._agent, is_asked_to_stop):
            return None
        told = _line(self._agent.stdout)
        if told is None:
            code = self._agent.wait()
            raise BrokenError(
                f"the agent of the engine dask ended with {code} before it had the cluster; its"
                " reason is above, or in the server's log",
                delivered="no",
            )
        if "error" in told:
            self._agent.wait()
            raise ConfigError(told["error"])
        self._told = told
        return told

    def _await_word(
        self, agent: subprocess.Popen[bytes], is_asked_to_stop: Callable[[], bool]
    ) -> bool:
        """Wait until the agent says something, or has ended; False: somebody asked to stop.

        Raises:
            BrokenError: it says nothing; it was ended.
        """
        assert agent.stdout is not None
        poll, until = select.poll(), time.monotonic() + START_S
        poll.register(agent.stdout, select.POLLIN)
        while not poll.poll(LOOK_MS):
            if is_asked_to_stop():
                return False
            if time.monotonic() >= until:
                agent.kill()
                agent.wait()
                where = self._config.scheduler or "this machine"
                raise BrokenError(
                    f"the agent of the engine dask has not had the cluster at {where} in"
                    f" {START_S:g} s; is the scheduler stopped? its log, or the server's, may say",
                    delivered="no",
                )
        return True

    def _listen(self) -> None:
        """Pass on what the agent says, until this is closed."""
        while True:
            assert self._agent is not None
            while (told := _line(self._agent.stdout)) is not None:
                if "warning" in told:
                    self._warn(told["warning"])
                else:
                    self._changed(self._capacity(told))
            if self._closing.is_set():
                return
            self._agent.wait()
            self._warn("the agent of the engine dask has ended and is started again")
            while not self._closing.wait(PAUSE_S):
                try:
                    told = self._begin(self._closing.is_set)
                except (ConfigError, BrokenError) as error:
                    self._warn(str(error))
                else:
                    if told is not None:
                        self._changed(self._capacity(told))
                    break
            else:
                return


def _line(stream: IO[bytes] | None) -> dict[str, Any] | None:
    """What the agent says next; None: it has ended."""
    assert stream is not None
    line = stream.readline()
    if not line:
        return None
    told: dict[str, Any] = json.loads(line)
    return told
