"""The tuning as requests: what is refused at once, what a killed compiler costs, what comes out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import forebay
from examples.gcc_tuning.app import CORES, PROGRAMS, Program, app, borrow, tune
from examples.gcc_tuning.backends import LocalBackend
from examples.gcc_tuning.flags import options_of
from examples.gcc_tuning.results import ResultCache
from examples.gcc_tuning.server import local_server
from examples.gcc_tuning.toolchain import program_names
from examples.gcc_tuning.tune import tune as tune_here
from forebay.executor.client import local
from tools.scenes.environments import holdings

NAMES = ("FOREBAY_STATE_DIR", "XDG_RUNTIME_DIR", "FOREBAY_EXECUTOR_IDLE_TIMEOUT")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[forebay.Client]:
    """A client of a server of the application."""
    for name in NAMES:  # local_server sets them
        monkeypatch.setenv(name, "")
    told: list[str] = []
    with local_server(told.append) as client:
        assert len(told) == 1
        yield client
    local._reap()  # a program reaps the servers that it started when it starts another


def test_the_programs_are_those_of_the_folder() -> None:
    """A program that is added to the folder can be asked for."""
    assert get_args(Program) == program_names(PROGRAMS)


def test_the_application_needs_no_gymnasium() -> None:
    """Whoever serves it from the wheel alone has none; only the environment of the demo is one."""
    program = "import sys; sys.modules['gymnasium'] = None; import examples.gcc_tuning.app"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_a_misspelt_program_is_refused_with_those_there_are(client: forebay.Client) -> None:
    """A typing mistake costs no worker and leaves no failed request."""
    with pytest.raises(forebay.ConfigError, match="lz"):
        client.run("tune", program="lzz", budget=2)
    assert client.list(name="tune") == []


def test_a_request_finds_what_the_function_finds(client: forebay.Client) -> None:
    """The server adds a queue, not a result: the same seed finds the same."""
    found = client.run(tune, program="lz", budget=6, seed=3)
    local = tune_here(
        ["lz"], lambda: LocalBackend(PROGRAMS, ResultCache()), options=options_of(), budget=6,
        seed=3, threads=1,
    )  # fmt: skip
    assert found == local.found["lz"]
    assert found.improved[0] == (1, found.base_bytes)


def test_a_compiler_is_borrowed_warm(client: forebay.Client) -> None:
    """Leases of a server's services come without a start."""
    started = client.ask("services")["services"]
    times = client.run(borrow, rounds=20)
    assert len(times) == 20
    assert len(client.ask("services")["services"]) <= max(len(started), app.services[0].max_size)


def test_a_killed_compiler_costs_one_trial_and_its_log_names_the_signal(
    client: forebay.Client,
) -> None:
    """The run goes on with another compiler, and says why one trial is lost."""
    request = client.submit(tune, program="matrix", budget=12)
    killed: list[int] = []
    for step in request.progress():
        if step.done >= 3 and not killed:
            killed = leased(client)[:1]
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
    found = request.result()
    assert killed
    assert (found.trials, found.outcomes["lost"], len(found.losses)) == (12, 1, 1)
    log = "".join(request.logs(follow=False))
    assert f"(process {killed[0]}) was killed by signal 9 (SIGKILL)" in log
    assert log.endswith(found.table() + "\n")


@pytest.mark.parametrize("rounds", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_resets_leave_no_process_descriptor_or_file(client: forebay.Client, rounds: int) -> None:
    """A server that lends for weeks is as small as on its first day."""
    borrow_until_warm(client)
    told = client.info()
    state = Path(told["state_dir"])
    until_returned(client)
    before = holdings(told["pid"], state)
    client.run(borrow, rounds=rounds)
    until_returned(client)
    deadline = time.monotonic() + 10
    # What the first look found in the middle of something may be gone; more there may not be, but
    # for the socket and the pidfd of each compiler that the worker had not been lent before.
    before["descriptors"] += 2 * len(client.ask("services")["services"])
    while grown := grown_from(before, after := holdings(told["pid"], state)):
        assert time.monotonic() < deadline, (grown, before, after)
        time.sleep(0.05)


def borrow_until_warm(client: forebay.Client) -> None:
    """Borrow until a compiler runs beside the one that is borrowed, which the server keeps idle."""
    deadline = time.monotonic() + 20
    client.run(borrow, rounds=100)
    while len(client.ask("services")["services"]) < min(2, CORES):
        assert time.monotonic() < deadline, client.ask("services")
        client.run(borrow, rounds=100)


def until_returned(client: forebay.Client) -> None:
    """Wait until no compiler is leased: a count in the middle of a lease is none."""
    deadline = time.monotonic() + 10
    while held := leased(client):
        assert time.monotonic() < deadline, held
        time.sleep(0.01)


def grown_from(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What there is more of."""
    return {what: count - before[what] for what, count in after.items() if count > before[what]}


def leased(client: forebay.Client) -> list[Any]:
    """Processes of the compilers that a request holds."""
    services = client.ask("services")["services"]
    return [service["pid"] for service in services if service["state"] == "leased"]
