"""The server of an experiment: started, killed, started again."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forebay.errors import BrokenError, ConfigError, DeadlineError
from forebay.gateway._internal import check_installed
from forebay.testing.experiment.child import command
from forebay.testing.experiment.struck import ServerProcesses

__all__ = ["Served", "Setting"]

READY_S: Final = 30.0
ASK_S: Final = 1.0
END_S: Final = 60.0
SOON_S: Final = 5.0
STEP_S: Final = 0.02
TAIL_LINES: Final = 20


@dataclass(frozen=True)
class Setting:
    """How the server of an experiment is started.

    Attributes:
        target: its application.
        directory: of the experiment.
        state: where its state lies.
        group: the file by which a control group is entered; "": none.
        environment: beside this process's.
        options: of `forebay serve`.
    """

    target: str
    directory: Path
    state: Path
    group: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


class Served:
    """A server that may be killed at any moment, and is started again.

    Affinity: `start`, `start_again` and `end` in the thread that waits for the experiment: the
    server ends with that thread.

    Attributes:
        no_gateway: why it has no gateway; None: it has one.
        port: of its gateway, if it has one.
        socket, state: where it listens and keeps its state; known once it was ready.
        processes: what can be struck.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.no_gateway = _refusal_of_gateway()
        self.port = _free_port() if self.no_gateway is None else None
        self.socket = Path()
        self.state = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = threading.Event()
        self._answers_http = threading.Event()
        self._reader: threading.Thread | None = None
        self._log = setting.directory / "server.log"
        self._unfit = ""
        """Why the application cannot be imported."""
        self._said: deque[str] = deque(maxlen=TAIL_LINES)
        self.processes = ServerProcesses(lambda: self.pid, lambda: self.socket, self._is_ready)

    @property
    def pid(self) -> int | None:
        """Of the server that runs; None: none does."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self, look: Callable[[], None]) -> None:
        """Start it, and wait until it serves, its gateway too.

        Args:
            look: is called again and again meanwhile.

        Raises:
            ConfigError: it cannot import the application.
            BrokenError: it ended before.
            DeadlineError: it does not come to serve.
        """
        self.start_again()
        deadline = time.monotonic() + READY_S
        while not self._ready.wait(STEP_S) or not self._gateway_answers():
            look()
            self._check_fit()
            if self.pid is None:
                raise BrokenError(
                    f"the server of the experiment has ended at its start: {self.tail()}",
                    delivered="no",
                )
            if time.monotonic() > deadline:
                what = "gateway" if self._ready.is_set() else "server"
                raise DeadlineError(f"the {what} does not answer in {READY_S:g} s: {self.tail()}")
        self._check_fit()

    def start_again(self) -> None:
        """Start it if it does not run, without waiting."""
        if self.pid is not None:
            return
        self._close()
        self._unfit = ""
        setting = self._setting
        self._ready, self._answers_http = threading.Event(), threading.Event()
        address = () if self.port is None else ("--http", f"127.0.0.1:{self.port}")
        arguments = ["serve", setting.target, "--state-dir", str(setting.state), "--json"]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command([*arguments, "--allow-chaos", *address, *setting.options], setting.group),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **setting.environment},
                start_new_session=True,  # Ctrl-C is for the experiment, which ends it in order
            )
        self._reader = threading.Thread(
            target=self._read,
            args=(self._process, self._ready, self._answers_http),
            daemon=True,
        )
        self._reader.start()

    def unexpected_end(self) -> str | None:
        """How it ended, if it has and nothing of the experiment killed it."""
        process = self._process
        code = None if process is None else process.poll()
        if code is None or code == -signal.SIGKILL:
            return None
        return f"the server ended by itself, with {code}: {self.tail()}"

    def end(self) -> int | None:
        """Ask it to end, as a service manager does, and wait; its exit code.

        Raises:
            DeadlineError: it does not end; it was killed then.
        """
        process = self._process
        if process is None:
            return None
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise DeadlineError(
                f"the server has not ended {END_S:g} s after SIGTERM: {self.tail()}"
            ) from None
        finally:
            self.kill()

    def end_soon(self) -> None:
        """End it without waiting for what runs: a second signal asks for that."""
        process = self._process
        if process is None:
            return
        try:
            for _ in range(2):
                process.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(SOON_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, if it runs."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._close()
            self._process = None

    def tail(self) -> str:
        """The last lines that it wrote."""
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            lines = []
        return " | ".join([*self._said, *lines][-3:]) or "it wrote nothing"

    # Its output.

    def _check_fit(self) -> None:
        if self._unfit:
            target = self._setting.target
            raise ConfigError(f"{target} cannot be imported:\n{self._unfit.rstrip()}")

    def _gateway_answers(self) -> bool:
        if self.port is None:
            return True
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ASK_S)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _is_ready(self) -> bool:
        return self._ready.is_set() and (self.port is None or self._answers_http.is_set())

    def _read(
        self,
        process: subprocess.Popen[bytes],
        ready: threading.Event,
        answers_http: threading.Event,
    ) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == "ready":
                self.socket = Path(event["socket"])
                self.state = Path(event["state_dir"])
                ready.set()
            elif event["event"] == "http":
                answers_http.set()
            elif event["event"] in ("unfit", "loaded"):  # a limit that was struck passes
                self._unfit = event.get("reason", "")
            elif event["event"] == "warning":
                self._said.append(event["text"])

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.join()
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()


def _refusal_of_gateway() -> str | None:
    try:
        check_installed()
    except ConfigError as error:
        return str(error)
    return None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
