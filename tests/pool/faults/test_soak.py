"""Leases from 16 threads in 4 client processes while everything that can die is killed or stopped.

Once with a pool for each client, once with one that is lent to all, whose lender dies too.
400 leases by default; `make soak` makes all 20,000 (FOREBAY_SOAK_LEASES says how many).
FOREBAY_SOAK_SEED repeats the decisions of a run.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay.testing import chaos
from tests.pool.processes import eventually
from tests.pool.scripts import ROOT
from tests.pool.services import Echo
from tests.pool.shared.lender import Lending

CLIENTS = 4
THREADS = 4
LEASES = int(os.environ.get("FOREBAY_SOAK_LEASES", "400"))
SEED = int(os.environ.get("FOREBAY_SOAK_SEED", str(secrets.randbits(16))))
SILENCE_S = 30.0  # beyond every timeout of a client: then it hangs
LAST_S = 60.0
NO_LENDER = "failed: no shared pool at "


class Clients:
    """The client processes: those that were killed are started again."""

    def __init__(self, scratch: Path, lender: Lender | None) -> None:
        self._scratch = scratch
        self._lender = lender
        self._started = 0
        self._selector = selectors.DefaultSelector()
        self._rest: dict[int, bytes] = {}
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.outcomes: Counter[str] = Counter()
        self.said = ""
        self._errors = (scratch.parent / "errors").open("w+b")

    def start(self) -> None:
        """Start those that are missing, and the lender where it was killed."""
        if self._lender is not None:
            self._lender.start()
        while len(self.running) < CLIENTS:
            self._start()

    def _start(self) -> None:
        self._started += 1
        seed = f"{SEED}-{self._started}"
        path = [] if self._lender is None else [str(self._lender.path)]
        process = subprocess.Popen(
            [
                sys.executable,
                str(ROOT / "tests/pool/faults/soak_client.py"),
                seed,
                str(THREADS),
                *path,
            ],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(self._scratch)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self.running[process.pid] = process
        self._rest[process.pid] = b""
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, process)

    def read(self, seconds: float) -> bool:
        """Take what they tell, and let go of those that ended. False where nobody said a thing."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            process: subprocess.Popen[bytes] = key.data
            told = os.read(key.fd, 1 << 16)
            *lines, self._rest[process.pid] = (self._rest[process.pid] + told).split(b"\n")
            self.outcomes.update(line.decode(errors="replace") for line in lines)
            if not told:
                self._selector.unregister(key.fileobj)
                self._ended(process)
        return bool(ready)

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        del self.running[process.pid]
        status = process.wait(10)
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        if status not in (0, -signal.SIGKILL):
            self.outcomes[f"WRONG: a client ended with {status}"] += 1

    def tell_to_end(self) -> None:
        """End them all by themselves: each finishes its leases and closes its pool."""
        for process in self.running.values():
            assert process.stdin is not None
            process.stdin.close()

    def kill(self) -> None:
        """Leave none, whatever happened."""
        for process in list(self.running.values()):
            process.kill()
            self._ended(process)
        self._selector.close()
        self._errors.seek(0)
        self.said = self._errors.read().decode(errors="replace")
        self._errors.close()

    def leases(self) -> int:
        """Leases that came to an end of some kind; where no lender was there, none was begun."""
        none = (self.outcomes[one] for one in self.outcomes if one.startswith(NO_LENDER))
        return self.outcomes.total() - self.outcomes["end"] - sum(none)

    def wrong(self) -> list[str]:
        """What must never be."""
        return [outcome for outcome in self.outcomes if outcome.startswith("WRONG")]

    def of(self, *finds: str) -> chaos.Targets:
        """Targets in the pools of all clients, or in the one that is lent to them."""

        def find() -> Iterator[chaos.Process]:
            for pid in list(self.running) if self._lender is None else self._lender.pids():
                for what in finds:
                    yield from getattr(chaos, what)(pid).now()

        return chaos.Targets(find)


class Lender:
    """The process that lends one pool to all clients; started again where it was killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lending: Lending | None = None

    def start(self) -> None:
        """Start it unless it runs."""
        if self._lending is None or self._lending.process.poll() is not None:
            self.end()
            times = ("--reset-timeout", "500ms", "--start-timeout", "3s")
            self._lending = Lending(self.path, "--max-size", "4", *times)

    def pids(self) -> list[int]:
        """Its process, where it runs."""
        lending = self._lending
        return [] if lending is None else [lending.pid]

    def end(self) -> None:
        """End it, and with it every service. Idempotent."""
        lending, self._lending = self._lending, None
        if lending is not None:
            lending.__exit__()

    def at_rest(self) -> list[str]:
        """What must never be once no client is there: somebody who holds something, or waits."""
        with forebay.SharedPool(self.path) as pool:
            if eventually(lambda: pool.stats()["programs"] == 1):
                stats = pool.stats()
                if stats["live"] == stats["idle"] + stats["settling"] and not stats["waiters"]:
                    return []
            return [f"WRONG: the shared pool at the end: {pool.stats()}, {pool.services()}"]


@contextlib.contextmanager
def storms(clients: Clients, lender: Lender | None) -> Iterator[list[chaos.Storm]]:
    """One storm for each part, since each dies in its own ways and at its own rate."""
    themselves = chaos.processes("client", lambda: list(clients.running))
    made = [
        chaos.storm(
            targets=clients.of("services", "templates"),
            actions=("kill", "kill", "stop", "continue", "delay"),
            rate=40,
            seed=SEED,
        ),
        chaos.storm(
            targets=clients.of("keeper"),
            actions=("kill", "delay"),
            rate=3,
            seed=SEED + 1,
            max_delay=1.0,
        ),
        chaos.storm(
            targets=themselves,
            actions=("kill", "delay"),
            rate=1.5,
            seed=SEED + 2,
            max_delay=0.5,
        ),
    ]
    if lender is not None:
        made += [
            chaos.storm(
                targets=chaos.processes("lender", lender.pids),
                actions=("kill", "delay"),
                rate=0.7,
                seed=SEED + 3,
                max_delay=0.5,
            )
        ]
    with contextlib.ExitStack() as stack:
        for storm in made:
            stack.enter_context(storm)
        yield made


def sweep(scratch: Path) -> None:
    """Use a pool there once: a keeper removes the directories of those that were killed."""
    assert tempfile.gettempdir() == str(scratch)
    with forebay.ServicePool(max_size=1) as pool, pool.acquire(Echo) as echo:
        assert echo.echo(1) == 1


def all_struck(made: list[chaos.Storm]) -> bool:
    """Whether each kind of strike that matters has come at least once."""
    struck = {key for storm in made for key in storm.counts()}
    kinds = ("service", "template", "keeper", "client", "lender")
    return {
        f"{kind} {action}"
        for kind in kinds[: len(made) + 1]  # one storm strikes services and templates
        for action in ("kill", "delay")
    } <= struck


def soak(scratch: Path, lender: Lender | None) -> tuple[Clients, list[chaos.Storm]]:
    """Run clients under storms until enough leases ended, then have the clients end in peace."""
    clients = Clients(scratch, lender)
    try:
        with storms(clients, lender) as made:
            while not clients.wrong() and not (clients.leases() >= LEASES and all_struck(made)):
                clients.start()
                assert clients.read(SILENCE_S), f"no client said a thing for {SILENCE_S:g} s"
        clients.tell_to_end()
        while clients.running:
            assert clients.read(LAST_S), f"{len(clients.running)} clients do not end"
        if lender is not None:
            lender.start()
            clients.outcomes.update(lender.at_rest())
    finally:
        clients.kill()
        if lender is not None:
            lender.end()
    sweep(scratch)
    return clients, made


@pytest.mark.slow
@pytest.mark.timeout(LEASES * 0.1 + 120)
@pytest.mark.parametrize("shared", [False, True], ids=["pools", "shared"])
def test_no_death_makes_a_wrong_answer_or_leaves_anything(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    shared: bool,
) -> None:
    """No wrong answer, no service in two hands, every waiter served or told why, nothing left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    lender = Lender(tmp_path / "lent" / "pool.sock") if shared else None
    with chaos.nothing_left(folders=[scratch]):
        clients, made = soak(scratch, lender)
    report = f"seed {SEED}: {dict(clients.outcomes.most_common())}; " + "; ".join(
        f"{storm.counts()}" for storm in made
    )
    with capsys.disabled():
        sys.stdout.write(f"\n{report}\n")  # the figures are what a soak is run for
    assert not clients.wrong(), report
    assert "Traceback" not in clients.said
    assert clients.leases() >= LEASES
    # The storms strike four pools where each client has its own, and one where it is lent.
    assert clients.outcomes["ok"] > LEASES / (4 if shared else 2), report
    assert all_struck(made), report
