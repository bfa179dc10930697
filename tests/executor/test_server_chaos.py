"""Everything that can die is killed while requests come in: none is lost, none runs twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from forebay.errors import Error
from tests.executor.serving import Caller, RefusedError, Serving, descendants, wait_gone

APP = (Path(__file__).parent / "server_app.py").read_text()
SERVER_KILLS = int(os.environ.get("FOREBAY_SOAK_KILLS", "8"))
"""Each round kills the server once and something else several times; a soak asks for 100."""

REQUESTS_A_ROUND = int(os.environ.get("FOREBAY_SOAK_REQUESTS", "100"))
SEED = int(os.environ.get("FOREBAY_SOAK_SEED", "11"))


class Submitter:
    """Submits requests that note their runs, until it is told to stop or its server is gone.

    Attributes:
        accepted: ids with the files in which the requests note that they ran.
        doubtful: files of requests whose submission was not answered: they may have run once.
    """

    def __init__(self, notes: Path) -> None:
        self.accepted: dict[str, Path] = {}
        self.doubtful: list[Path] = []
        self._notes = notes
        self._count = 0

    def submit(self, caller: Caller, count: int) -> None:
        """Submit so many, some of which may run again."""
        for _ in range(count):
            self._count += 1
            name = "persist" if self._count % 3 == 0 else "mark"
            path = self._notes / f"{self._count}-{name}"
            seconds = 0.02 if self._count % 10 == 0 else 0.0
            try:
                self.accepted[caller.submit(name, path=str(path), seconds=seconds)] = path
            except (RefusedError, Error, OSError):
                self.doubtful.append(path)
                return


def kill_one(serving: Serving, chance: random.Random) -> str:
    """Kill a worker, the template or the keeper of a server, whichever chance says."""
    below = descendants(serving.pid)
    names = {pid: _name(pid) for pid in below}
    wanted = chance.choice(["fb service", "fb service", "fb template", "fb keeper"])
    candidates = [pid for pid, name in names.items() if name == wanted]
    if candidates:
        try:
            os.kill(chance.choice(candidates), signal.SIGKILL)
        except ProcessLookupError:
            return ""
    return wanted if candidates else ""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def runs(path: Path) -> int:
    return path.read_text().count("ran") if path.exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * SERVER_KILLS)
def test_nothing_is_lost_whatever_dies(tmp_path: Path) -> None:
    """Accepted means that it ends, once, and that its end says what happened."""
    chance = random.Random(SEED)
    notes = tmp_path / "notes"
    notes.mkdir()
    submitter = Submitter(notes)
    serving = Serving(tmp_path, APP, long_workers=2, workers_max=4, deaths_max=20)
    seen: set[int] = set()
    killed: list[str] = []
    try:
        for _ in range(SERVER_KILLS):
            serving.start()
            with serving.caller() as caller:
                thread = threading.Thread(target=submitter.submit, args=(caller, REQUESTS_A_ROUND))
                thread.start()
                until = time.monotonic() + chance.uniform(0.1, 0.8)
                while time.monotonic() < until:
                    seen |= set(descendants(serving.pid))
                    killed.append(kill_one(serving, chance))
                    time.sleep(chance.uniform(0.0, 0.1))  # no wait: chaos has a rhythm
                seen |= {serving.pid, *descendants(serving.pid)}
                serving.kill()
                thread.join()
        serving.start()
        with serving.caller() as caller:
            check(caller, submitter)
    finally:
        serving.close()
    for pid in seen:
        wait_gone(pid)
    assert len(submitter.accepted) > SERVER_KILLS
    assert any(killed)


def check(caller: Caller, submitter: Submitter) -> None:
    """Every accepted request has ended, and ran as often as it may.

    A claim may trail its dispatch where a request may run again, so that a kill of the server may
    cost it a run that nobody counted: what has `retries` may run more often than that.
    """
    for id, path in submitter.accepted.items():
        try:
            caller.wait(id)
        except RefusedError as refused:
            told = refused.told
            assert told["kind"] == "died", told
            assert told["cause"] in ("signal", "server", "unknown"), told
            succeeded = False
        else:
            succeeded = True
        count = runs(path)
        if path.name.endswith("mark"):
            assert count <= 1, f"{id} ran {count} times"
            assert count == 1 or not succeeded
        else:
            assert count >= 1 or not succeeded
    for path in submitter.doubtful:
        assert runs(path) <= 1 or path.name.endswith("persist")
