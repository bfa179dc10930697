"""The command line itself: help, mistakes, what it costs to start."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.cli import main
from forebay.cli.commands import COMMANDS

HELPED = (
    (),
    ("pool",),
    ("pool", "ls"),
    ("pool", "leases"),
    ("pool", "warm"),
    ("pool", "drain"),
    ("token", "add"),
    ("token", "ls"),
    ("token", "rm"),
    ("token", "link"),
    *((name,) for name in COMMANDS if name != "pool"),
)
# 150 ms where CPython alone starts in 11 ms of a processor; a slower machine is slower at both.
HELP_STARTS = 0.15 / 0.011


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever runs on this machine is no part of these tests."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", HELPED, ids=" ".join)
def test_help_ends_with_examples(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever asks for help wants something to type."""
    with contextlib.suppress(SystemExit):
        assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    examples = shown[shown.index("examples:\n") :]
    assert "  forebay " in examples


def test_help_loads_nothing_that_it_does_not_need() -> None:
    """Help within 150 ms leaves no room for an event loop, a codec or the extension."""
    program = (
        "import sys\n"
        "from forebay.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(' '.join(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stderr.split())
    assert "argparse" in loaded
    assert not loaded & {
        "asyncio",
        "msgspec",
        "numpy",
        "forebay._core",
        "forebay.pool.shared.pool",
    }


def test_help_is_there_within_150_ms(tmp_path: Path) -> None:
    """Counted in time of a processor, of which no other program takes any, beside CPython's own.

    With byte code on disk, as an installed package has it, whatever the environment says.
    """
    helped = ("-m", "forebay.cli", "run", "--help")
    alone = ("-I", "-S", "-c", "pass")
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def seconds(arguments: tuple[str, ...]) -> float:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_utime + used.ru_stime

    pairs = [(seconds(helped), seconds(alone)) for _ in range(10)]
    ours, python = (min(column) for column in zip(*pairs, strict=True))
    assert ours < HELP_STARTS * python


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["srve"], "did you mean 'serve'?"),
        (["pool", "lease"], "did you mean 'leases'?"),
        (["pool", "ls", "--jsn"], "did you mean '--json'?"),
    ],
)
def test_a_typo_gets_the_nearest_name(
    arguments: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody has to read the help to find a slip of the finger."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert near in told.err
    assert told.out == ""


def test_an_abbreviation_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    """A script that uses one would break when another option begins so."""
    assert main(["pool", "ls", "--js"]) == 2
    assert "unrecognized arguments: --js" in capsys.readouterr().err


def test_no_command_shows_the_help_and_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """Results go to stdout, and this is none."""
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "examples:" in told.err


def test_a_mistake_is_one_json_object_where_json_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A program that reads our output reads our errors too."""
    assert main(["pool", "nothing", "--json"]) == 2
    told = json.loads(capsys.readouterr().err)
    assert told["schema"] == 1
    assert set(told["error"]) == {"code", "message", "object", "limit", "value", "next"}
    assert told["error"]["code"] == "usage"


def test_the_version_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    """A script asks for it."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip()
