"""The supervisor: workers start side by side, their ends are told, versions replace each other."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from forebay.executor.server.oom import OomKills
from forebay.executor.server.plan import Plan
from forebay.executor.server.supervisor import Supervisor
from forebay.executor.server.worker_group import Worker, WorkerGroup
from forebay.pool import Spec
from tests.executor.serving import until, wait_gone
from tests.executor.worker.supervisor_workers import IdleWorker, Scribe


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The application's file."""
    path = tmp_path / "app.py"
    path.write_text("one")
    return path


@pytest.fixture
def scribe(tmp_path: Path) -> Iterator[Scribe]:
    made = Scribe(tmp_path / "side")
    yield made
    made.close()


def plan_of(scribe: Scribe, source: Path, *, reloads: bool = True) -> Plan:
    return Plan(
        spec_of=lambda: IdleWorker.spec(str(source)),
        side_socket=scribe.side_path,
        options={"pool": "a pool"},
        files=(str(source),),
        reloads=reloads,
        start_timeout=20.0,
    )


def supervisor_of(scribe: Scribe, source: Path, *, reloads: bool = True) -> Supervisor:
    return Supervisor(scribe, plan_of(scribe, source, reloads=reloads), scribe)


@pytest.fixture
def supervisor(scribe: Scribe, source: Path) -> Iterator[Supervisor]:
    """A supervisor that has loaded its application."""
    made = supervisor_of(scribe, source)
    made.start()
    assert scribe.hear("loaded")[0]["text"] == "one"
    yield made
    made.close()


def children() -> set[int]:
    """Processes that descend from this one, but for the helper that spawning one leaves behind."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue
            parents[int(entry)] = int(text.rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    return found - {os.getpid(), tracker}


def started(scribe: Scribe, slot: int, lane: str = "short") -> int:
    scribe.order("start", slot, lane, 99)
    told, pid, _ = scribe.hear("worker_ready")
    assert told == slot
    assert scribe.hear_worker().startswith(f"serving {slot} {lane} 99")
    return int(pid)


def test_thirty_workers_start_side_by_side(supervisor: Supervisor, scribe: Scribe) -> None:
    """A burst of thirty does not wait for thirty starts one after the other."""
    started(scribe, 99)  # the template has forked once
    began = time.monotonic()
    for slot in range(30):
        scribe.order("start", slot, "long", slot)
    ready = [scribe.hear("worker_ready") for _ in range(30)]
    assert {slot for slot, _, _ in ready} == set(range(30))
    assert len({pid for _, pid, _ in ready}) == 30
    assert max(at for _, _, at in ready) - began < 1.5  # 60 ms on an idle machine


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGKILL, ("signal", None, 9)), (None, ("exit", 7, None))]
)
def test_an_end_is_told_with_its_cause(
    supervisor: Supervisor,
    scribe: Scribe,
    number: int | None,
    expected: tuple[str, int | None, int | None],
) -> None:
    """Whoever waits for the request is told why it failed."""
    pid = started(scribe, 3, "hasty" if number is None else "short")
    if number is not None:
        os.kill(pid, number)
    began = time.monotonic()
    scribe.order("died", 3)
    slot, cause, told_pid, exit_code, by_signal, *_, output = scribe.hear("worker_died")
    assert time.monotonic() - began < 1.0
    assert (slot, told_pid) == (3, pid)
    assert (cause, exit_code, by_signal) == expected
    assert output == f"serving 3 {'hasty' if number is None else 'short'} 99 of one"


class ForeignGroup(WorkerGroup):
    """Whose workers stand for processes of other machines."""

    owns_workers = False  # type: ignore[assignment]


@pytest.mark.parametrize(("group", "cause"), [(WorkerGroup, "memory"), (ForeignGroup, "signal")])
def test_a_kill_for_memory_here_is_of_a_process_here(
    scribe: Scribe, source: Path, tmp_path: Path, group: type[WorkerGroup], cause: str
) -> None:
    """The kernel of another machine counts its own."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("")
    counter = tmp_path / "vmstat"
    counter.write_text("oom_kill 0\n")
    plan = plan_of(scribe, source)
    made = Supervisor(
        scribe,
        replace(
            plan, group_of=lambda spec, limit: group(spec, start_timeout=limit, name="workers")
        ),
        scribe,
    )
    made._oom_kills = OomKills(tmp_path, tmp_path)
    made.start()
    try:
        scribe.hear("loaded")
        pid = started(scribe, 3)
        counter.write_text("oom_kill 1\n")
        os.kill(pid, signal.SIGKILL)
        scribe.order("died", 3)
        slot, told, *_ = scribe.hear("worker_died")
        assert (slot, told) == (3, cause)
    finally:
        made.close()


class BusyGroup(WorkerGroup):
    """Which takes in the keeper's report of a start when it is asked for something else.

    Attributes:
        keeper: is stopped until a worker has answered its start.
    """

    keeper = 0

    def advance(self, worker: Worker) -> bool:
        is_ready = super().advance(worker)
        if self.keeper and not is_ready and worker.is_unreported:
            os.kill(self.keeper, signal.SIGCONT)
            handle = worker.record.handle
            until(lambda: self._core.death(handle) or self._core.process(handle))
        return is_ready


def test_a_report_that_another_question_took_in_is_seen(scribe: Scribe, source: Path) -> None:
    """Nothing tells of it again: the request would wait for its worker until something happens."""
    groups: list[BusyGroup] = []

    def group_of(spec: Spec[Any], limit: float) -> WorkerGroup:
        groups.append(BusyGroup(spec, start_timeout=limit, name="workers"))
        return groups[-1]

    made = Supervisor(scribe, replace(plan_of(scribe, source), group_of=group_of), scribe)
    made.start()
    try:
        scribe.hear("loaded")
        until(lambda: len(children() - set(_keepers())) == 1)
        (keeper,) = _keepers()
        (template,) = children() - {keeper}
        os.kill(template, signal.SIGSTOP)
        asleep = sleeps(keeper)
        scribe.order("start", 1, "short", 99)
        until(lambda: sleeps(keeper) > asleep)  # it has told the template
        os.kill(keeper, signal.SIGSTOP)
        groups[-1].keeper = keeper
        os.kill(template, signal.SIGCONT)
        assert scribe.hear("worker_ready", timeout=10.0)[0] == 1
    finally:
        made.close()


def sleeps(pid: int) -> int:
    """How often a process has gone to sleep."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("voluntary_ctxt_switches:")[2].split()[0])


def test_a_worker_that_does_not_leave_is_killed(supervisor: Supervisor, scribe: Scribe) -> None:
    """A worker that hangs does not keep its memory."""
    pid = started(scribe, 1)
    scribe.order("stop", 1)
    wait_gone(pid)
    scribe.order("died", 1)
    slot, _, _, _, by_signal, *_ = scribe.hear("worker_died")
    assert (slot, by_signal) == (1, signal.SIGKILL)


def test_a_killed_keeper_costs_its_workers_and_no_more(
    supervisor: Supervisor, scribe: Scribe
) -> None:
    """The next order starts another keeper."""
    pid = started(scribe, 1)
    (keeper,) = _keepers()
    os.kill(keeper, signal.SIGKILL)
    wait_gone(pid)
    scribe.order("died", 1)
    assert scribe.hear("worker_died")[:2] == (1, "server")
    for _ in range(3):
        scribe.order("start", 2, "short", 1)
        told = scribe.told.get(timeout=20.0)
        if told[0] == "worker_ready":
            break
    assert told[:2] == ("worker_ready", 2)


def test_a_killed_template_is_started_again(supervisor: Supervisor, scribe: Scribe) -> None:
    """Workers that live do not notice; the next one is forked from another template."""
    first = started(scribe, 1)
    # A keeper that has not said its name yet looks like a template.
    until(lambda: len(children() - {first} - set(_keepers())) == 1)
    (template,) = children() - {first} - set(_keepers())
    os.kill(template, signal.SIGKILL)
    second = started(scribe, 2)
    assert children() >= {first, second}


def test_a_change_is_loaded_and_the_old_version_ends_with_its_workers(
    supervisor: Supervisor, scribe: Scribe, source: Path
) -> None:
    """Edit and run: what starts from now on is the new code; nothing of the old one stays."""
    old = started(scribe, 1)
    (old_keeper,) = _keepers()
    source.write_text("two")
    scribe.order("sources", [str(source)])
    assert scribe.hear("hold") == (None,)
    assert scribe.hear("loaded")[0]["text"] == "two"
    new = started(scribe, 2)
    os.kill(old, signal.SIGKILL)
    scribe.order("died", 1)
    scribe.hear("worker_died")
    wait_gone(old_keeper)
    os.kill(new, signal.SIGKILL)
    scribe.order("died", 2)
    assert scribe.hear("worker_died")[-1].endswith("of two")


def test_an_application_that_cannot_be_imported_is_a_reason(
    supervisor: Supervisor, scribe: Scribe, source: Path
) -> None:
    """Nothing is run by old code meanwhile, and the next change is loaded again."""
    source.write_text("raise it")
    scribe.order("sources", [str(source)])
    assert scribe.hear("watch_sources") == ([str(source)],)
    (reason,) = scribe.hear("hold")
    assert "RuntimeError: cannot import raise it" in reason
    assert reason.startswith("Traceback")
    source.write_text("three")
    scribe.order("sources", [str(source)])
    assert scribe.hear("loaded")[0]["text"] == "three"


def test_without_reload_a_change_is_only_told(scribe: Scribe, source: Path) -> None:
    """Plain `serve` goes on with what it has, until it is told to reload."""
    supervisor = supervisor_of(scribe, source, reloads=False)
    supervisor.start()
    try:
        scribe.hear("loaded")
        source.write_text("two")
        scribe.order("sources", [str(source)])
        assert scribe.hear("changed") == ([str(source)],)
        supervisor.reload()
        assert scribe.hear("loaded")[0]["text"] == "two"
    finally:
        supervisor.close()


def test_without_reload_a_broken_version_costs_nothing(scribe: Scribe, source: Path) -> None:
    """A server in production that is told to reload goes on with what it has."""
    supervisor = supervisor_of(scribe, source, reloads=False)
    supervisor.start()
    try:
        scribe.hear("loaded")
        source.write_text("raise it")
        supervisor.reload()
        reason, serves = scribe.hear("unfit")
        assert "cannot import raise it" in reason
        assert serves is True
        source.write_text("two")  # not loaded: nobody said so
        pid = started(scribe, 1)
        os.kill(pid, signal.SIGKILL)
        scribe.order("died", 1)
        assert scribe.hear("worker_died")[-1].endswith("of one")
    finally:
        supervisor.close()


def test_an_import_whose_template_is_killed_is_tried_again(
    scribe: Scribe, source: Path, tmp_path: Path
) -> None:
    """The kernel may end a template for want of memory; the next one may find some."""
    source.write_text(f"wait {tmp_path / 'go'}")
    supervisor = supervisor_of(scribe, source)
    supervisor.start()
    try:
        killed = set()
        while len(killed) < 4:  # one more than a single load tries
            template = children() - set(_keepers()) - killed
            for pid in template:  # or a keeper that has not said its name yet, or nobody any more
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed |= template
        (tmp_path / "go").touch()
        assert scribe.hear("loaded")[0]["text"].startswith("wait")
    finally:
        supervisor.close()


def test_an_import_without_descriptors_is_tried_again(scribe: Scribe, source: Path) -> None:
    """A server whose clients had taken all of them ended, and now begins once some are back."""
    supervisor = supervisor_of(scribe, source)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = len(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken, limits[1]))
        supervisor.start()
        until(lambda: supervisor._failed_loads >= 2)
        scribe.order("start", 3, "short", 99)
        assert scribe.hear("worker_failed")[0] == 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    try:
        assert scribe.hear("loaded")[0]["text"] == "one"
        started(scribe, 4)
    finally:
        supervisor.close()


class WithoutDescriptors(Scribe):
    """A dispatcher that has no descriptor left to watch sources by, for the first times."""

    def __init__(self, side_path: Path, times: int) -> None:
        super().__init__(side_path)
        self.left = times

    def watch_sources(self, paths: list[str]) -> None:
        """Fail, or watch them."""
        self.left -= 1
        if self.left >= 0:
            raise OSError(errno.EMFILE, "watch source files: inotify_init1")
        self.__getattr__("watch_sources")(paths)


@pytest.mark.parametrize("times", [1, 5])
def test_sources_that_cannot_be_watched_end_no_server(
    tmp_path: Path, source: Path, times: int
) -> None:
    """It ended where they were to be watched when the last descriptor had gone."""
    scribe = WithoutDescriptors(tmp_path / "side", times)
    supervisor = supervisor_of(scribe, source)
    try:
        supervisor.start()
        assert scribe.hear("loaded")[0]["text"] == "one"
        started(scribe, 4)
    finally:
        supervisor.close()
        scribe.close()


def test_an_import_whose_worker_is_killed_is_tried_again(
    scribe: Scribe, source: Path, tmp_path: Path
) -> None:
    """A server refused every submission until the next edit, though nothing was wrong with it."""
    source.write_text(f"die {tmp_path / 'deaths'}")
    supervisor = supervisor_of(scribe, source)
    supervisor.start()
    try:
        assert scribe.hear("loaded")[0]["text"].startswith("die")
        assert len((tmp_path / "deaths").read_text()) == 5
    finally:
        supervisor.close()


def test_services_are_warmed_by_a_worker_that_ends(supervisor: Supervisor, scribe: Scribe) -> None:
    """The server itself never imports what could start them."""
    before = children()
    supervisor.warm()
    ((name, (pid,)),) = scribe.hear("warmed")[0]
    assert name == "a pool"
    assert pid not in before
    wait_gone(pid)


def test_a_start_that_is_not_needed_any_more_is_given_up(
    supervisor: Supervisor, scribe: Scribe
) -> None:
    """An order may be taken back before it is carried out."""
    scribe.order("start", 5, "short", 1)
    scribe.order("stop", 5)
    told = scribe.told.get(timeout=20.0)
    if told[0] == "worker_ready":  # it was quicker
        wait_gone(told[2])
    else:
        assert told[:2] == ("worker_failed", 5)


def test_closing_leaves_no_process(scribe: Scribe, source: Path) -> None:
    """Workers, template and keeper end with the server."""
    before = children()
    supervisor = supervisor_of(scribe, source)
    supervisor.start()
    scribe.hear("loaded")
    try:
        started(scribe, 1)
        # Keeper, template and worker, once the one that told the manifest is gone.
        until(lambda: len(children() - before) == 3)
    finally:
        supervisor.close()
    assert children() == before


def _keepers() -> list[int]:
    found = []
    for pid in children():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"run_keeper" in command:
            found.append(pid)
    return found
