"""A server takes the place of another: nothing is lost, nothing runs twice, nobody is refused.

`make chaos` has twenty of them in a row under load; FOREBAY_TAKEOVERS says how many.
"""

from __future__ import annotations

import copy
import itertools
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest

import forebay
from forebay.executor.app.target import parse_target
from forebay.executor.server.takeover.wire import PROTOCOL, Channel
from forebay.executor.wire.paths import paths_of
from tests.executor.server.chaos_clients import Submitter
from tests.executor.server.chaos_verdict import Store, Verdict
from tests.executor.server.test_moved_workers import busy_worker
from tests.executor.serving import Serving, descendants, until, wait_gone

FOLDER = Path(__file__).parent
APP = (FOLDER / "server_app.py").read_text()
CHAOS_APP = (FOLDER / "chaos_app.py").read_text()
TAKEOVERS = int(os.environ.get("FOREBAY_TAKEOVERS", "3"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(secrets.randbits(16))))
CLIENTS = 4
REQUESTS_EACH = 100
"""Of all clients, while one server serves."""

pytestmark = pytest.mark.timeout(120 + 20 * TAKEOVERS)


STAYS = """
import os, time
import forebay

app = forebay.App("stays")

@app.request()
def large() -> bytes:
    return bytes(200_000)

@app.request()
def stay(path: str, gate: str) -> str:
    open(path, "w").close()
    while not os.path.exists(gate):
        time.sleep(0.01)
    return "stayed"

@app.request()
def add(a: int) -> int:
    return a
"""


class Stays:
    """A server whose one worker cannot go over: it has lent memory to the server."""

    def __init__(self, directory: Path) -> None:
        self.serving = Serving(directory, STAYS, long_workers=1, max_workers=1)
        self.gate = directory / "gate"
        self._ran = directory / "ran"

    def __enter__(self) -> Self:
        self.serving.__enter__()
        self.caller = self.serving.caller()
        for _ in range(2):  # the first long result says that there are some, the second is lent
            self.caller.ask("wait", self.caller.submit("large"))
        self.stays = self.caller.submit("stay", path=str(self._ran), gate=str(self.gate))
        until(self._ran.exists)
        self.waits = self.caller.submit("add", a=1)
        return self

    def __exit__(self, *_: object) -> None:
        self.caller.close()
        self.serving.close()


def state_of(serving: Serving) -> Path:
    """The state directory of a server."""
    state_dir = serving.environment["FOREBAY_STATE_DIR"]
    return paths_of(parse_target(str(serving.file)), state_dir=state_dir).state


def test_many_in_a_row_under_load(tmp_path: Path) -> None:
    """Programs submit without a pause, and none hears of it."""
    serving = Serving(tmp_path, CHAOS_APP, long_workers=2, max_workers=4)
    marks = tmp_path / "marks"
    marks.touch()
    permits = threading.Semaphore(0)
    try:
        serving.start()
        url = f"unix://{serving.socket}"
        each = (TAKEOVERS + 1) * REQUESTS_EACH // CLIENTS
        submitters = [Submitter(url, permits, each, SEED * CLIENTS + n) for n in range(CLIENTS)]
        for _ in range(TAKEOVERS):
            permits.release(REQUESTS_EACH)
            before, serving = serving, serving.replace()
            assert before.ended() == 0
        permits.release(CLIENTS * each)
        for submitter in submitters:
            submitter.join(120)
        serving.process.send_signal(signal.SIGTERM)
        serving.ended()
        told = [submitter.told for submitter in submitters]
        verdict = Verdict.of(told, Store.read(state_of(serving)), marks.read_text())
    finally:
        serving.close()
    assert verdict.wrong == [], f"seed {SEED}"
    accepted = sum(len(one.accepted) for one in told)
    assert accepted == CLIENTS * each, "each was accepted, and known to be"
    assert [one.refused for one in told] == [{}] * CLIENTS
    assert [one.maybe for one in told] == [set()] * CLIENTS
    statuses = {end.status for one in told for end in one.ends.values()}
    assert statuses == {"succeeded"}, f"seed {SEED}"
    lines = marks.read_text().splitlines()
    assert len(lines) == accepted, "each ran once"


def test_what_runs_goes_on_under_the_next_server(tmp_path: Path) -> None:
    """It notices nothing, and who waits for it has its result from the next server."""
    with Serving(tmp_path, APP, long_workers=1, max_workers=1) as serving:
        gate = tmp_path / "gate"
        with forebay.Client(f"unix://{serving.socket}", start=False) as client:
            runs = client.submit("mark", path=str(tmp_path / "ran"), gate=str(gate))
            waits = client.submit("sleep", seconds=0.0)
            until((tmp_path / "ran").exists)
            pid = busy_worker(client)
            successor = serving.replace()
            try:
                assert client.info()["pid"] == successor.pid
                assert isinstance(waits.result(timeout=20), int), "in a worker of its own"
                assert runs.show()["status"] == "running"
                gate.touch()
                assert runs.result(timeout=20) == pid, "the same process"
                assert runs.show()["attempts"] == 1
                assert serving.ended() == 0, "once the last of its workers has ended"
                wait_gone(pid)
            finally:
                successor.close()
        assert (tmp_path / "ran").read_text() == "ran\n"


def test_what_cannot_go_over_in_time_leaves_the_old_server_in_its_place(tmp_path: Path) -> None:
    """The new server says what it waited for, and the old one goes on with its clients."""
    with Stays(tmp_path) as old:
        successor = old.serving.replace(ready=False, drain_grace=0.3)
        assert "1 runs that are being ended or have lent" in successor.hear("taking")["text"]
        told = successor.hear("error")
        assert "it has waited 0.3 s for 1 runs" in told["message"]
        assert successor.ended() == 70
        old.gate.touch()
        assert old.caller.wait(old.waits) == 1
        assert old.caller.wait(old.stays) == "stayed"


def test_a_successor_that_is_killed_while_it_waits_changes_nothing(tmp_path: Path) -> None:
    """The old server hears its end, and begins what waits."""
    with Stays(tmp_path) as old:
        successor = old.serving.replace(ready=False)
        successor.hear("taking")
        successor.kill()
        old.gate.touch()
        assert old.caller.wait(old.waits) == 1


def test_submissions_are_accepted_while_it_waits(tmp_path: Path) -> None:
    """They run on the next server."""
    with Stays(tmp_path) as old:
        successor = old.serving.replace(ready=False)
        successor.hear("taking")
        accepted = old.caller.submit("add", a=2)
        old.gate.touch()
        successor.hear("ready")
        with successor.caller() as caller:
            assert caller.wait(accepted) == 2
            assert caller.wait(old.waits) == 1
            assert caller.wait(old.stays) == "stayed"
        old.serving.ended()
        successor.close()


FALSE = """
import sys, time
from pathlib import Path
from forebay import _core
from forebay.executor.server.takeover.wire import PROTOCOL, Channel

channel = Channel.to(Path(sys.argv[1]))
channel.send("begin", protocol=PROTOCOL, store=_core.StoreReader.VERSION)
channel.expect("begun", 10)
channel.send("ready", within_s=10)
while (packet := channel.receive(20)).kind == "waits":
    pass
assert packet.kind == "worker"
while packet.kind == "worker":
    assert len(packet.descriptors) == 4
    packet = channel.receive(20)
assert packet.kind == "given" and len(packet.descriptors) == 3
time.sleep(float(sys.argv[2]))
"""
"""A server that has everything, and never says that it serves."""


@pytest.mark.parametrize("hangs_s", [0, 600], ids=["dies", "hangs"])
def test_a_successor_that_fails_with_the_place_leaves_it_to_the_old_server(
    tmp_path: Path, hangs_s: int
) -> None:
    """It starts its parts anew, once the other one has certainly ended; what runs goes on."""
    serving = Serving(tmp_path, APP, take_s=1.0, end_s=1.0)
    gate = tmp_path / "gate"
    with serving:
        with serving.caller() as caller:
            runs = caller.submit("mark", path=str(tmp_path / "ran"), gate=str(gate))
            before = caller.submit("add", a=1)
            until((tmp_path / "ran").exists)
        path = Path(serving.socket).with_suffix(".take")
        program = [sys.executable, "-c", FALSE, str(path), str(hangs_s)]
        successor = subprocess.Popen(program, env=serving.environment)
        serving.hear("given")
        with serving.caller() as waiting:  # nobody refuses it: it waits in the socket's queue
            serving.hear("resumed")
            assert successor.wait(10) == (-signal.SIGKILL if hangs_s else 0)
            assert waiting.wait(before) == 3
            assert waiting.run("add", a=2) == 4
            gate.touch()
            assert isinstance(waiting.wait(runs), int)
            assert (tmp_path / "ran").read_text() == "ran\n"
        successor = serving.replace()
        assert serving.ended() == 0
        with successor.caller() as caller:
            assert caller.run("add", a=2) == 4
        successor.close()


PATCHED = """
import os, sys
from forebay.executor.server.takeover import succession
from tests.executor import serve_program

serves = succession.Succession.serves
deed = {deed!r}

def changed(self, dispatcher):
    if deed == "dies":
        os._exit(9)
    os.kill(self._predecessor.pid, 9)
    assert self._predecessor.has_ended(10)
    serves(self, dispatcher)

succession.Succession.serves = changed
sys.exit(serve_program.main())
"""
"""A server that does something when it has the place and has not said so."""


def patched(serving: Serving, deed: str) -> Serving:
    """A successor that does this."""
    successor = copy.copy(serving)
    successor.program = [sys.executable, "-c", PATCHED.format(deed=deed)]
    return successor.replace(ready=False)


def test_a_successor_that_dies_has_begun_nothing(tmp_path: Path) -> None:
    """What waits may run once, and does so under the old server; what runs is answered there."""
    with Serving(tmp_path, APP, long_workers=1, max_workers=1) as serving:
        gate = tmp_path / "gate"
        with serving.caller() as caller:
            runs = caller.submit("mark", path=str(tmp_path / "ran"), gate=str(gate))
            until((tmp_path / "ran").exists)
            waits = caller.submit("mark", path=str(tmp_path / "waits"))
        successor = patched(serving, "dies")
        assert successor.ended() == 9
        serving.hear("resumed")
        gate.touch()
        with serving.caller() as caller:
            assert isinstance(caller.wait(runs), int)
            assert isinstance(caller.wait(waits), int)
        assert (tmp_path / "waits").read_text() == "ran\n"


def test_a_server_that_is_killed_when_it_has_given_its_place_is_missed_by_nobody(
    tmp_path: Path,
) -> None:
    """The new one has everything, and goes on alone."""
    with Serving(tmp_path, APP, long_workers=1, max_workers=1) as serving:
        gate = tmp_path / "gate"
        with serving.caller() as caller:
            runs = caller.submit("persist", path=str(tmp_path / "ran"), gate=str(gate))
            until((tmp_path / "ran").exists)
            waits = caller.submit("add", a=1)
        successor = patched(serving, "kills")
        successor.hear("ready")
        assert serving.ended() == -signal.SIGKILL
        gate.touch()
        with successor.caller() as caller:
            assert caller.wait(waits) == 3
            assert isinstance(caller.wait(runs), int), "in another worker: it may run again"
        assert (tmp_path / "ran").read_text() == "ran\nran\n"
        successor.close()


def test_a_server_that_ends_while_it_is_asked_is_followed_all_the_same(tmp_path: Path) -> None:
    """There is no place to take, so the new one begins as any."""
    with Stays(tmp_path) as old:
        successor = old.serving.replace(ready=False)
        successor.hear("taking")
        os.kill(old.serving.pid, signal.SIGTERM)
        old.gate.touch()
        successor.hear("ready")
        assert old.serving.ended() == signal.SIGTERM
        with successor.caller() as caller:
            assert caller.wait(old.stays) == "stayed"
            assert caller.wait(old.waits) == 1
        successor.close()


@pytest.mark.parametrize("left", [0, 1, 2])
def test_without_descriptors_it_keeps_its_place_its_clients_and_its_cores(
    tmp_path: Path, left: int
) -> None:
    """Whatever it lacks them for: the connection, its process, or what is to be given.

    The next try succeeds once there are some.
    """
    with Serving(tmp_path, APP) as serving:
        with serving.caller() as caller:
            assert caller.run("add", a=1) == 3
            before = resource.prlimit(serving.pid, resource.RLIMIT_NOFILE)
            limit = limit_that_leaves(left, serving.pid)
            resource.prlimit(serving.pid, resource.RLIMIT_NOFILE, (limit, before[1]))
            successor = serving.replace(ready=False, answer_s=3.0)
            try:
                used = cpu_s(serving.pid)
                successor.hear("error", 30)
                assert cpu_s(serving.pid) - used < 1.0
                successor.ended()
            except BaseException:
                successor.close()
                raise
            resource.prlimit(serving.pid, resource.RLIMIT_NOFILE, before)
            assert caller.run("add", a=1) == 3, "over the connection that it had"
        successor = serving.replace()
        assert serving.ended() == 0
        successor.close()


def limit_that_leaves(count: int, pid: int) -> int:
    """The limit of descriptors by which a process can open so many more."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = (number for number in itertools.count() if number not in used)
    return next(itertools.islice(free, count, None))


def cpu_s(pid: int) -> float:
    """What a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_second_successor_is_refused(tmp_path: Path) -> None:
    """With the process that is at it."""
    with Stays(tmp_path) as old:
        first = old.serving.replace(ready=False)
        first.hear("taking")
        second = old.serving.replace(ready=False)
        told = second.hear("error")
        assert f"process {first.pid} takes its place already" in told["message"]
        second.ended()
        old.gate.touch()
        first.hear("ready")
        old.serving.ended()
        first.close()


def test_an_application_that_cannot_be_imported_never_disturbs_the_server(tmp_path: Path) -> None:
    """The traceback is the new server's."""
    with Serving(tmp_path, APP) as serving:
        serving.file.write_text("import no_such_module")
        successor = serving.replace(ready=False)
        assert "no_such_module" in successor.hear("error")["message"]
        assert successor.ended() == 70
        with serving.caller() as caller:
            assert caller.run("add", a=1) == 3


def test_without_a_server_it_starts(tmp_path: Path) -> None:
    """One command for both."""
    serving = Serving(tmp_path, APP, takeover=True)
    with serving, serving.caller() as caller:
        assert caller.run("add", a=1) == 3


def test_another_version_of_the_store_is_refused(tmp_path: Path) -> None:
    """It would migrate the store under a server that may have to go on."""
    with Serving(tmp_path, APP) as serving:
        channel = Channel.to(Path(serving.socket).with_suffix(".take"))
        channel.send("begin", protocol=PROTOCOL, store=999)
        packet = channel.receive(10)
        assert packet is not None
        assert "its store has version" in packet.told["why"]
        assert "999" in packet.told["why"]
        channel.close()
        with serving.caller() as caller:
            assert caller.run("add", a=1) == 3


def test_nothing_is_left_of_the_old_server(tmp_path: Path) -> None:
    """No process, and of its sockets those of the new one alone."""
    with Serving(tmp_path, APP) as serving:
        with serving.caller() as caller:
            assert caller.run("add", a=1) == 3
        below = descendants(serving.pid)
        successor = serving.replace()
        try:
            serving.ended()
            for pid in below:
                wait_gone(pid)
            with successor.caller() as caller:
                assert caller.run("add", a=1) == 3
            began = time.monotonic()
            successor.process.send_signal(signal.SIGTERM)
            successor.ended()
            assert time.monotonic() - began < 20
            left = {path.suffix for path in Path(serving.socket).parent.iterdir()}
            assert left <= {".lock"}, left
        finally:
            successor.close()
