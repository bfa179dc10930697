"""Everything that can die is killed while clients submit: nothing is lost, run twice or left.

The server is killed again and again at moments that a seed decides, also while it starts; its
workers, template and keeper are under a storm of their own meanwhile.
Runs are counted by the requests themselves, with lines in a file, and ends are read from the
store's file once the last server has left.
`make chaos` kills 100 servers under 2,000 requests; FOREBAY_CHAOS_KILLS says how many, and
FOREBAY_CHAOS_SEED repeats the decisions of a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor.app.target import parse_target
from forebay.executor.wire.paths import paths_of
from forebay.testing import chaos
from tests.executor.server.chaos_clients import Submitter
from tests.executor.server.chaos_verdict import Store, Verdict
from tests.executor.serving import Serving, wait_gone

APP = (Path(__file__).parent / "chaos_app.py").read_text()
KILLS = int(os.environ.get("FOREBAY_CHAOS_KILLS", "8"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(secrets.randbits(16))))
REQUESTS_A_KILL = 20
CLIENTS = 4
LIVES = {"starting": 0.15, "serving": 0.15, "working": 0.7}
"""What a server has come to when its time begins to run, and how often."""

LIFE_S = 0.5
"""It is killed within this time, whatever it does then."""

WORK_S = 5.0
"""A server whose template is killed meanwhile may not come to work."""

PROBES = (b"", b"blat")
"""What `tempfile` writes to see whether a directory takes files; a SIGKILL then leaves it there."""

BATCHES = 4
"""Submissions of one life come in so many bursts, the last one when the server is killed."""

ENDS_S = 120.0
"""Far more than what is left to do at the end takes."""


class Chaos:
    """One application whose servers die under the requests of four clients."""

    def __init__(self, directory: Path) -> None:
        self.serving = Serving(directory, APP, long_workers=2, max_workers=4)
        self.marks = directory / "marks"
        self.marks.touch()
        self.struck: Counter[str] = Counter()
        self._chance = random.Random(SEED)
        self._permits = threading.Semaphore(0)
        self._pids: list[int] = []

    def run(self) -> Verdict:
        """Kill so many servers, let the last one finish and leave; what came of it."""
        each = KILLS * REQUESTS_A_KILL // CLIENTS
        url = f"unix://{self.serving.socket}"
        submitters = [
            Submitter(url, self._permits, each, SEED * CLIENTS + number)
            for number in range(CLIENTS)
        ]
        try:
            with self._storms():
                for _ in range(KILLS):
                    self._one_life()
            self.serving.start()
            self._permits.release(KILLS * REQUESTS_A_KILL)  # those that a thread had no use for
            for submitter in submitters:
                submitter.join(ENDS_S)
        finally:
            self._leave()
        state = paths_of(
            parse_target(str(self.serving.file)),
            state_dir=self.serving.environment["FOREBAY_STATE_DIR"],
        ).state
        told = [submitter.told for submitter in submitters]
        verdict = Verdict.of(told, Store.read(state), self.marks.read_text())
        verdict.counts.update({f"killed: {kind}": count for kind, count in self.struck.items()})
        return verdict

    def _one_life(self) -> None:
        """Of a server: from its start to a SIGKILL; the next one does not wait for its orphans."""
        serving, chance = self.serving, self._chance
        (what,) = chance.choices(list(LIVES), list(LIVES.values()))
        done = self.marks.stat().st_size
        serving.start(ready=what != "starting")
        self._pids.append(serving.pid)
        life = chance.uniform(0.0, LIFE_S)
        for part in range(BATCHES):
            self._permits.release(REQUESTS_A_KILL // BATCHES)
            if part == 0 and what == "working":
                self._wait_for_work(done)
            elif part < BATCHES - 1:
                time.sleep(life / (BATCHES - 2))  # not a wait: this is how long it lives
        time.sleep(chance.uniform(0.0, 0.005))
        os.kill(serving.pid, signal.SIGKILL)
        assert serving.ended() == -signal.SIGKILL
        self.struck["server"] += 1
        self.struck[f"server while {what}"] += 1

    def _wait_for_work(self, done: int) -> None:
        """Until a request runs on this server, or it is clear that none will soon."""
        deadline = time.monotonic() + WORK_S
        while self.marks.stat().st_size == done and time.monotonic() < deadline:
            time.sleep(0.005)

    @contextlib.contextmanager
    def _storms(self) -> Iterator[None]:
        """One for each part, since each dies at its own rate."""
        owner = self.serving
        parts = {"services": 8.0, "templates": 0.3, "keeper": 0.3}
        with contextlib.ExitStack() as stack:
            made = [
                stack.enter_context(
                    chaos.storm(targets=_of(owner, what), rate=rate, seed=SEED + number)
                )
                for number, (what, rate) in enumerate(parts.items())
            ]
            yield
        for storm in made:
            self.struck.update(strike.kind for strike in storm.log)

    def _leave(self) -> None:
        """Tell the last server to go, and see that nobody's child is there any more."""
        if self.serving.process is not None and self.serving.process.poll() is None:
            self.serving.process.send_signal(signal.SIGTERM)
            assert self.serving.ended() == signal.SIGTERM
        for pid in self._pids:
            wait_gone(pid)


def _of(serving: Serving, what: str) -> chaos.Targets:
    """Processes of the server that runs at the moment."""

    def find() -> Iterator[chaos.Process]:
        if serving.process is not None:
            yield from getattr(chaos, what)(serving.pid).now()

    return chaos.Targets(find)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * KILLS)
def test_nothing_is_lost_run_twice_or_left_whatever_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Accepted means that it ends, once, that its end says why, and that it is the one told."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    with chaos.nothing_left(folders=[scratch], timeout=10.0):
        began = time.monotonic()
        calamity = Chaos(tmp_path)
        try:
            verdict = calamity.run()
        finally:
            left = sorted(path.name for path in Path(calamity.serving.runtime).rglob("*.*"))
            calamity.serving.close()
            for path in scratch.iterdir():
                if path.is_file() and path.read_bytes() in PROBES:
                    path.unlink()
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {SEED}, {time.monotonic() - began:.0f} s\n{verdict.table()}\n"
        )  # the figures are what chaos is run for
    assert not verdict.wrong, "\n".join([f"seed {SEED}", *verdict.wrong])
    assert verdict.counts["killed: server"] == KILLS
    assert verdict.counts["accepted"] > KILLS * REQUESTS_A_KILL / 2
    assert not left, f"a server that was told to leave has left {left}"
