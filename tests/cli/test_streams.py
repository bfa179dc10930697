"""Streams that take nothing, or not everything: a command prints what it can and ends well."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.test_real_server import APPLICATION, Shell, shell

__all__ = ["shell"]

CLOSINGS = {
    ">&-": (0, ""),
    "2>&-": (0, "5\n"),
    ">&- 2>&- <&-": (0, ""),
    "2>/dev/full": (0, "5\n"),
    ">/dev/full": (1, ""),
}


@pytest.mark.parametrize("closing", CLOSINGS)
def test_a_stream_that_takes_nothing_is_no_crash(shell: Shell, closing: str) -> None:
    """As a daemon runs it, or on a disk that is full; the request itself ran."""
    line = f"{sys.executable} -m forebay.cli run scene.py:answer --number 5 {closing}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=shell.home, env=shell.environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == CLOSINGS[closing]
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert "the output cannot be written: No space left on device" in done.stderr


def test_text_beyond_ascii_is_spelt_out_where_it_has_to_be(shell: Shell) -> None:
    """A terminal or a log file in ASCII ends no command."""
    shell.environment["PYTHONIOENCODING"] = "ascii"
    shell.application.write_text(APPLICATION.replace("number * 1", "'grün' * number"))
    done = shell("run", "--quiet", "scene.py:answer")
    assert (done.code, done.out) == (0, "gr\\xfcn\n")


def test_the_first_line_is_enough_for_whoever_reads_it(shell: Shell) -> None:
    """`forebay logs -f ID | head -1` ends when head does, without a complaint."""
    id_ = shell("submit", "scene.py:count", "--to", "1000").out.strip()
    line = f"{sys.executable} -m forebay.cli logs -f {id_} | head -n 1"
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=shell.home,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout, done.stderr) == ("at 0\n", "")
