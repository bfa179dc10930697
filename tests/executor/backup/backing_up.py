"""A backup as a shell takes it, and a server that starts from one."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from forebay.errors import Error
from forebay.executor.client.client import Client
from tests.executor.serving import Serving, end_at_once

APP = (Path(__file__).parent / "backup_app.py").read_text()
COMMAND = [sys.executable, "-m", "forebay.cli"]
RESULT_BYTES_MAX = 2_000
"""Of results in the database, in these tests."""

MANY = 5_000
"""Requests from which on a load submits some hundred a second."""


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def forebay(environment: dict[str, str], *words: str | Path) -> Ended:
    """Run the command to its end."""
    told = subprocess.run(
        [*COMMAND, *map(str, words)], env=environment, capture_output=True, text=True, check=False
    )
    return Ended(told.returncode, told.stdout, told.stderr)


def back_up(serving: Serving, target: Path, *options: str) -> Ended:
    """Take a backup of what a server has, or had."""
    return forebay(serving.environment, "backup", target, "--app", serving.file, *options)


def state_of(serving: Serving) -> Path:
    """The state directory of its application."""
    (state,) = Path(serving.environment["FOREBAY_STATE_DIR"]).iterdir()
    return state


@contextlib.contextmanager
def served(serving: Serving, directory: Path) -> Iterator[Client]:
    """A client of a server that `forebay serve` has started from a backup."""
    command = [*COMMAND, "serve", str(serving.file), "--state-dir", str(directory), "--json"]
    process = subprocess.Popen(
        command, env=serving.environment, stdout=subprocess.PIPE, cwd=serving.file.parent
    )
    assert process.stdout is not None
    try:
        ready = next(it for it in map(json.loads, process.stdout) if it["event"] == "ready")
        reader = threading.Thread(target=process.stdout.read)  # so that its pipe is never full
        reader.start()
        with Client(f"unix://{ready['socket']}", timeout=30.0) as client:
            yield client
        end_at_once(process)
        process.wait(30)
        reader.join()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Load:
    """Programs that submit until they are stopped, and know what was accepted."""

    def __init__(self, serving: Serving, threads: int = 2) -> None:
        self._serving = serving
        self._accepted: dict[str, Any] = {}
        self._over = threading.Event()
        self._rest = threading.Event()
        self._rest.set()
        self._threads = [
            threading.Thread(target=self._submit, args=(number,)) for number in range(threads)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._rest.set()
        for thread in self._threads:
            thread.join()

    def accepted(self) -> dict[str, Any]:
        """What was accepted until now: ids, and the results that they are to have."""
        return self._accepted.copy()

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Submit nothing meanwhile."""
        self._rest.clear()
        try:
            yield
        finally:
            self._rest.set()

    def _submit(self, number: int) -> None:
        dice = random.Random(number)
        with Client(f"unix://{self._serving.socket}", timeout=30.0) as client:
            at = 0
            while not self._over.is_set():
                self._rest.wait()
                at += 1
                with contextlib.suppress(Error):
                    if dice.random() < 0.1:
                        size = dice.randrange(RESULT_BYTES_MAX + 1, 20_000)
                        request = client.submit("large", letter="x", size=size)
                        self._accepted[request.id] = b"x" * size
                    else:
                        text = f"{number}/{at}"
                        request = client.submit("echo", text=text)
                        self._accepted[request.id] = text
                # As fast as they are accepted, then fewer: a backup takes longer the more there
                # are, and the retention removes the oldest.
                time.sleep(0.0005 if len(self._accepted) < MANY else 0.005)


def partial_folders(directory: Path) -> list[str]:
    """What backups have left that were not completed."""
    return [name for name in os.listdir(directory) if ".partial-" in name]
