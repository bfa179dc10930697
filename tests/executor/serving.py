"""A running server for tests: start, ask, kill, start again."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from msgspec import msgpack

from forebay import _core
from forebay.executor.app.target import parse_target
from forebay.executor.wire.paths import paths_of
from forebay.rpc import Channel

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = 10
BETWEEN_SIGNALS_S = 0.3
PROGRAM = [sys.executable, "-m", "tests.executor.serve_program"]


class RefusedError(Exception):
    """The server said no; `told` is the refusal."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(told["message"])
        self.told = told


class Caller:
    """A client that speaks the wire plainly."""

    def __init__(self, path: str, timeout: float = 20.0) -> None:
        self.timeout = timeout
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(path)
        self._channel = Channel(_core.Connection(connected.detach()), codec="msgpack")
        self._token = 0

    def ask(self, method: str, *args: Any) -> Any:
        """The values of the answer; one of them alone as it is."""
        kind, *values = self._channel.call(method, args, timeout=self.timeout)
        if kind != 0:
            raise RefusedError(values[0])
        return values[0] if len(values) == 1 else values

    def submit(self, name: str, options: dict[str, Any] | None = None, **arguments: Any) -> str:
        """Submit a request; its id, once it is on disk."""
        return str(self.ask("submit", name, msgpack.encode(arguments), options, None))

    def begin(self, name: str, options: dict[str, Any] | None = None, **arguments: Any) -> int:
        """Send a submission without waiting; `taken` has the answer."""
        return self._channel.begin("submit", (name, msgpack.encode(arguments), options, None))

    def taken(self, call: int) -> str:
        """The id of a submission that was begun."""
        kind, *values = self._channel.finish(call, timeout=self.timeout)
        if kind != 0:
            raise RefusedError(values[0])
        return str(values[0])

    def run(self, name: str, options: dict[str, Any] | None = None, **arguments: Any) -> Any:
        """The result of a request; RefusedError with the failure where it has none."""
        self._token += 1
        packed = msgpack.encode(arguments)
        _, status, payload = self.ask("run", name, packed, options, self._token)
        return _result(status, payload)

    def wait(self, id: str) -> Any:
        """The result of a request that was submitted."""
        _, status, payload = self.ask("wait", id)
        return _result(status, payload)

    def close(self) -> None:
        """Leave."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _result(status: str, payload: bytes) -> Any:
    if status == "succeeded":
        return msgpack.decode(payload)
    failure = json.loads(payload)
    raise RefusedError({"message": f"{status}: {failure}", "status": status, **failure})


class Serving:
    """One application and its server, in directories of its own.

    Args:
        directory: where the application's file is written.
        source: its content.
        group: a cgroup that the server enters before it begins.
        settings: of the server, by the names of ExecutorConfig, and `reloads`, `ends_when_idle`.
    """

    def __init__(
        self, directory: Path, source: str, *, group: Path | None = None, **settings: Any
    ) -> None:
        self.program = PROGRAM
        if group is not None:
            enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
            self.program = ["/bin/sh", "-c", enter, "sh", *PROGRAM]
        self.file = directory / "app.py"
        self.file.write_text(source)
        self.settings = settings
        self.runtime = tempfile.mkdtemp(prefix="fb-", dir="/tmp")  # a socket's path is short
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": self.runtime,
            "FOREBAY_STATE_DIR": str(directory / "state"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)]),
        }
        # Users have byte code on disk, whatever the environment of the tests is.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.process: subprocess.Popen[bytes] | None = None
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None

    @property
    def socket(self) -> str:
        """Where it serves."""
        saved = {name: os.environ.get(name) for name in ("XDG_RUNTIME_DIR", "FOREBAY_STATE_DIR")}
        os.environ.update({name: self.environment[name] for name in saved})
        try:
            return str(paths_of(parse_target(str(self.file))).socket)
        finally:
            for name, value in saved.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    @property
    def pid(self) -> int:
        """Of the server."""
        assert self.process is not None
        return self.process.pid

    def start(self, *, ready: bool = True) -> Self:
        """Start the server, and wait until it is ready."""
        self.process = subprocess.Popen(
            [*self.program, str(self.file), json.dumps(self.settings)],
            stdout=subprocess.PIPE,
            env=self.environment,
            cwd=self.file.parent,
        )
        self._events = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self.process, self._events))
        self._reader.start()
        if ready:
            self.hear("ready")
        return self

    def replace(self, *, ready: bool = True, **settings: Any) -> Serving:
        """Start a server that takes the place of this one; that one is waited for by `ended`.

        Args:
            ready: wait until it serves.
            settings: other than those of this one.
        """
        successor = copy.copy(self)
        successor.settings = {**self.settings, **settings, "takeover": True}
        try:
            return successor.start(ready=ready)
        except BaseException:
            successor.close()
            raise

    def hear(self, event: str, timeout: float = 30.0) -> dict[str, Any]:
        """The next event of a kind; others before it are passed over."""
        deadline = time.monotonic() + timeout
        while True:
            told = self._events.get(timeout=max(0.01, deadline - time.monotonic()))
            assert told is not None, f"the server ended before {event!r}"
            assert told["event"] in (event, "error") or event != "error"
            if told["event"] == event:
                return told
            assert told["event"] != "error", told["message"]

    def caller(self) -> Caller:
        """A client of it."""
        return Caller(self.socket)

    def kill(self) -> None:
        """SIGKILL, and wait until every process of it is gone."""
        pids = [self.pid, *descendants(self.pid)]
        os.kill(self.pid, signal.SIGKILL)
        self.ended()
        for pid in pids:
            wait_gone(pid)

    def ended(self, timeout: float = 30.0) -> int:
        """Wait for its end; its exit code."""
        assert self.process is not None
        code = self.process.wait(timeout)
        if self._reader is not None:
            self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def close(self) -> None:
        """End it, if it runs, and remove its directory of sockets."""
        if self.process is not None and self.process.returncode is None:
            end_at_once(self.process)
            try:
                self.ended()
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.runtime, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _read(process: subprocess.Popen[bytes], events: Any) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            if told["event"] != "engine":  # only with --engine, and before all others
                events.put(told)
        events.put(None)


def end_at_once(process: subprocess.Popen[bytes]) -> None:
    """Tell a server to end, and then not to wait for what runs.

    Two signals that are sent together may arrive as one, and a drain takes half a minute.
    """
    for _ in range(SIGNALS):
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(BETWEEN_SIGNALS_S)


def descendants(pid: int) -> list[int]:
    """Processes below a process."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            state, parent = text.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry)] = int(parent)
    found = {pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def thread_of(pid: int, name: str) -> int:
    """The thread of a process that has this name, of which the kernel keeps 15 bytes."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return next(int(one.name) for one in tasks if (one / "comm").read_text().strip() == name)


def wait_gone(pid: int, timeout: float = 10.0) -> None:
    """Until a process is gone, by its own descriptor."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], timeout)[0], f"process {pid} is still there"
    finally:
        os.close(pidfd)


def proportional_bytes(pid: int) -> int:
    """Proportional set size of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no Pss")


def until(
    found: Any, timeout: float = 20.0, *, every: float = 0.01, why: Callable[[], Any] | None = None
) -> Any:
    """What `found` returns once it is true; for what nobody can be told of.

    Args:
        found: is asked again and again.
        timeout: seconds.
        every: seconds between two questions.
        why: what the failure shows.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() >= deadline:
            shown = f": {why()}" if why else ""
            raise AssertionError(f"it has not come in time{shown}")
        time.sleep(every)
