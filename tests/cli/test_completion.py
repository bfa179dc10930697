"""`forebay completion`: scripts that shells take, and what they ask for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.cli import main
from forebay.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What it prints for a shell."""
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_its_options_are_in_the_script(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is made from the parser, so nothing is forgotten."""
    text = script(shell, capsys)
    for name in COMMANDS:
        assert name in text
    assert "dry-run" in text
    if shutil.which(shell) is not None:
        checked = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True)
        assert checked.stderr == ""


@pytest.mark.needs("bash")
def test_bash_completes_commands_and_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As somebody sees it who presses the tab key."""
    file = tmp_path / "completion"
    file.write_text(script("bash", capsys))

    def completed(*words: str) -> list[str]:
        line = (
            f"source {file}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1};"
            " _forebay; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        environment = os.environ | {"PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            ["bash", "--norc", "-c", line], env=environment, capture_output=True, text=True
        )
        return done.stdout.split()

    assert completed("forebay", "st") == ["status", "stop"]
    assert completed("forebay", "ps", "--fa") == ["--failed"]
    assert completed("forebay", "pool", "le") == ["leases"]


def test_words_are_nothing_where_no_server_runs(tmp_path: Path) -> None:
    """And they come soon: somebody holds the tab key."""
    environment = os.environ | {
        "XDG_RUNTIME_DIR": str(tmp_path),
        "FOREBAY_STATE_DIR": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    for command in ("run", "why", "ps"):
        done = subprocess.run(
            [sys.executable, "-m", "forebay.cli", "completion", "bash", "--words", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
