"""`forebay chaos` as a command: its table, its exit code, and what is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from forebay.cli import main
from forebay.testing import _process, chaos
from forebay.testing.experiment.run import NONE_THERE
from forebay.testing.experiment.schedule import FAULTS
from tests.executor.serving import until
from tests.pool.scripts import ROOT

MINUTES = float(os.environ.get("FOREBAY_CHAOS_MINUTES", "0.1"))
"""`make chaos` has two, for each seed."""

SEEDS = [int(seed) for seed in os.environ.get("FOREBAY_CHAOS_SEEDS", "1").split(",")]

APP = """
import os

import forebay
from forebay.testing import Ledger

app = forebay.App("mine")


@app.request(lane="short")
def add(a: int, b: int = 1) -> int:
    return a + b


@app.request(lane="short")
def counted(ctx: forebay.Context, key: str, times: int = 1) -> None:
    for _ in range(times):
        Ledger.current().begun(key, ctx)
"""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a command whose files all lie below one directory, which it empties."""
    short = Path("/tmp") / f"fbt-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    short.mkdir()
    # Also of this process, which looks there for what is left: other programs use the usual one.
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    yield {
        **os.environ,
        "TMPDIR": str(short),
        "XDG_RUNTIME_DIR": str(short),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)]),
    }
    for path in sorted(short.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    short.rmdir()


def forebay(*arguments: str, environment: dict[str, str], cwd: Path) -> subprocess.Popen[str]:
    """The command, started."""
    return subprocess.Popen(
        [sys.executable, "-m", "forebay.cli", *arguments],
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], timeout: float = 50) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.timeout(300 + 120 * MINUTES)
@pytest.mark.parametrize("seed", SEEDS)
def test_everything_is_struck_and_nothing_is_lost(
    seed: int, tmp_path: Path, scratch: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The experiment's own application, which uses all five systems, survives every fault."""
    arguments = ("chaos", "--seed", str(seed), "--minutes", str(MINUTES), "--json")
    with chaos.nothing_left(folders=[scratch["TMPDIR"]]):
        process = forebay(*arguments, environment=scratch, cwd=tmp_path)
        code, out, err = ended(process, 240 + 90 * MINUTES)
    assert out, (code, err)
    told = json.loads(out)
    with capsys.disabled():
        sys.stdout.write(f"\n{err}{json.dumps(told, indent=1)}\n" if MINUTES > 0.2 else "")
    assert told["wrong"] == [], err
    assert code == 0
    assert told["good"]
    assert told["ledger"]["lost"] == told["ledger"]["doubled"] == 0
    assert told["ledger"]["accepted"] > 100 * MINUTES
    assert {row["what"] for row in told["faults"]} == set(FAULTS)
    for row in told["faults"]:
        assert row["injected"] or row["reason"] != NONE_THERE, row
        assert row["survived"] == row["injected"], row


def test_a_request_that_runs_twice_is_found(tmp_path: Path, scratch: dict[str, str]) -> None:
    """An application of the user's, whose request begins twice and may begin once: exit code 1."""
    (tmp_path / "mine.py").write_text(APP)
    arguments = ("chaos", "mine.py", "--request", 'counted={"times": 2}', "--faults", "kill-worker")
    process = forebay(*arguments, "--minutes", "0.02", "--quiet", environment=scratch, cwd=tmp_path)
    code, out, err = ended(process)
    assert code == 1, err
    assert "begun 2 times and may begin once" in out
    assert out.rstrip().endswith("WRONG")


def test_a_request_that_is_never_taken_is_found(tmp_path: Path, scratch: dict[str, str]) -> None:
    """A misspelt argument is refused each time: nothing was lost, and nothing was tested."""
    (tmp_path / "mine.py").write_text(APP)
    wanted = ("--request", 'add={"a": 1}', "--request", 'counted={"tims": 2}')
    arguments = ("chaos", "mine.py", *wanted, "--faults", "kill-worker", "--minutes", "0.02")
    code, out, err = ended(forebay(*arguments, environment=scratch, cwd=tmp_path))
    assert code == 1, err
    assert "wrong: counted: no submission was taken" in out
    assert "tims" in out


def test_an_application_of_the_users_survives(tmp_path: Path, scratch: dict[str, str]) -> None:
    """Its requests are named, their runs are counted where the function does so."""
    (tmp_path / "mine.py").write_text(APP)
    wanted = ("--request", 'add={"a": 1}', "--request", "counted", "--faults", "kill-worker")
    process = forebay(
        "chaos",
        "mine.py",
        *wanted,
        "--minutes",
        "0.05",
        "--json",
        environment=scratch,
        cwd=tmp_path,
    )
    code, out, err = ended(process)
    assert code == 0, (out, err)
    told = json.loads(out)
    assert told["ledger"]["begun"] > 0
    assert "forebay chaos --seed" in err
    assert "kill-worker" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_leaves_nothing(
    tmp_path: Path, scratch: dict[str, str], number: signal.Signals, code: int
) -> None:
    """Whoever has seen enough gets the table so far, and no server, no stopped process, no file."""
    with chaos.nothing_left(folders=[scratch["TMPDIR"]]):
        process = forebay("chaos", "--minutes", "5", environment=scratch, cwd=tmp_path)
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(6)]  # it strikes by now
        process.send_signal(number)
        ended_with, out, err = ended(process)
    assert ended_with == code, (lines, err)
    assert "interrupted" in out
    assert "wrong:" not in out


@pytest.mark.timeout(120)
def test_a_killed_experiment_takes_its_server_with_it(
    tmp_path: Path, scratch: dict[str, str]
) -> None:
    """Also a server that is stopped at that moment."""
    # Of this seed the first stop comes after half a second, and lasts for two.
    arguments = ("chaos", "--seed", "19", "--minutes", "5", "--faults", "stop-server")
    process = forebay(*arguments, environment=scratch, cwd=tmp_path)
    assert process.stderr is not None
    until(lambda: "stop-server" in process.stderr.readline(), 60)
    below = _process.descendants(process.pid)
    assert len(below) > 3
    process.kill()
    ended(process, 20)
    until(lambda: not [pid for pid in below if _process.stat(pid) is not None], 30)
    for path in Path(scratch["TMPDIR"]).glob("fb-chaos-*"):
        subprocess.run(["rm", "-rf", path], check=True)


def test_a_running_server_is_struck_only_where_it_allows_that(
    tmp_path: Path, scratch: dict[str, str]
) -> None:
    """A server of other people's work is left alone; one that allows it goes on afterwards."""
    (tmp_path / "mine.py").write_text(APP)
    strikes = ("chaos", "mine.py", "--request", 'add={"a": 1}', "--running", "--minutes", "0.05")

    @contextmanager
    def serving(*options: str) -> Iterator[None]:
        server = forebay("serve", "mine.py", *options, environment=scratch, cwd=tmp_path)
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("serving")
            yield
        finally:
            server.terminate()
            ended(server, 60)

    def ask(*arguments: str) -> tuple[int, str, str]:
        return ended(forebay(*arguments, environment=scratch, cwd=tmp_path), 120)

    assert ask(*strikes)[0] == 3  # none runs
    with serving():
        code, _, err = ask(*strikes)
        assert (code, "without --allow-chaos" in err) == (2, True), err
    with serving("--allow-chaos"):
        code, out, err = ask(*strikes, "--json")
        assert code == 0, (out, err)
        rows: dict[str, Any] = {row["what"]: row for row in json.loads(out)["faults"]}
        assert rows["kill-worker"]["injected"] > 0
        for what in ("kill-server", "full-disk", "memory-limit", "clock-jump"):
            assert "not started by this command" in rows[what]["reason"]
        assert ask("run", "mine.py:add", "--a", "2")[1].strip() == "3"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--request", "add"], "name one: forebay chaos APP"),
        (["--running"], "name one: forebay chaos APP"),
        (["mine.py"], "give --request NAME"),
        (["mine.py", "--request", "add={"], "no JSON"),
        (["--minutes", "0"], "above 0"),
        (["--faults", "fire"], "no fault is called 'fire'"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_is_started(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and what to type."""
    assert main(["chaos", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_request_that_there_is_not_is_told_with_those_that_there_are(
    tmp_path: Path, scratch: dict[str, str]
) -> None:
    """Before any fault."""
    (tmp_path / "mine.py").write_text(APP)
    arguments = ("chaos", "mine.py", "--request", "ad", "--minutes", "0.01")
    code, _, err = ended(forebay(*arguments, environment=scratch, cwd=tmp_path), 60)
    assert code == 2
    assert "no request 'ad'; it has add, counted" in err


def test_an_application_that_cannot_be_imported_is_told(
    tmp_path: Path, scratch: dict[str, str]
) -> None:
    """With its traceback, and before any fault."""
    (tmp_path / "mine.py").write_text("import forebay\n1 / 0\n")
    arguments = ("chaos", "mine.py", "--request", "add", "--minutes", "0.01")
    code, _, err = ended(forebay(*arguments, environment=scratch, cwd=tmp_path))
    assert code == 2
    assert "ZeroDivisionError" in err
    assert "cannot be imported" in err


def test_the_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for programs."""
    assert main(["chaos", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(what in shown for what in FAULTS)
    assert main(["chaos", "--list", "--json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["fault"] for one in told] == list(FAULTS)
