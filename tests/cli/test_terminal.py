"""Texts of requests on a terminal, which would obey them."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import pty
import subprocess
import sys

from forebay.cli.output import harmless, table
from forebay.cli.session import log
from tests.cli.test_real_server import Shell, shell

__all__ = ["shell"]

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31mevil\r\n\tend"
SPELT = r"\x1b]0;owned\x07\x1b[2J\x9b31mevil\x0d"


def on_terminal(shell: Shell, *words: str) -> str:
    """What a command writes to a terminal of its own, all of it."""
    terminal, end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "forebay.cli", *words],
        cwd=shell.home,
        env=shell.environment | {"TERM": "xterm", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=end,
        stderr=end,
    ):
        os.close(end)
        seen = b""
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # its other end is closed
                break
            seen += piece
    os.close(terminal)
    return seen.decode()


def test_escapes_of_a_request_do_not_reach_a_terminal(shell: Shell) -> None:
    """The message of an exception may be a stranger's data, and any later `ps` prints it."""
    code = shell("run", "--quiet", "scene.py:fail", "--text", EVIL)
    assert code.code == 1
    assert "\x1b]0;owned" in code.err  # no terminal: as it is
    for command in (["ps"], ["why", "@last"], ["show", "@last"], ["result", "@last"]):
        seen = on_terminal(shell, *command)
        assert "owned" in seen, command
        assert "\x1b]" not in seen, command
        assert "\x07" not in seen, command
        assert "\x1b[2J" not in seen, command
        assert "\x9b" not in seen, command
    assert "\x1b[31mfailed\x1b[0m" in on_terminal(shell, "ps")


def test_a_log_keeps_its_colors_on_a_terminal_and_nothing_worse(shell: Shell) -> None:
    """Programs draw bars by returns; a title or a clipboard is not theirs to set."""
    application = shell.application.read_text()
    line = 'print("\\x1b[32mgreen\\x1b[0m 1%\\r2%\\x1b]52;c;eA==\\x07")'
    shell.application.write_text(application.replace('print("thinking of", number)', line))
    assert shell("run", "--quiet", "scene.py:answer").code == 0
    seen = on_terminal(shell, "logs", "@last")
    assert "\x1b[32mgreen\x1b[0m 1%\r2%\\x1b]52;c;eA==\\x07" in seen
    # No terminal: as it is. Python reads the return of a pipe as the end of a line.
    assert shell("logs", "@last").out == "\x1b[32mgreen\x1b[0m 1%\n2%\x1b]52;c;eA==\x07\n"


def test_what_is_spelt_out() -> None:
    """Lines and tabs stay; for a pipe all stays."""
    terminal, end = pty.openpty()
    with os.fdopen(end, "w") as stream:
        assert harmless(EVIL, stream) == SPELT + "\n\tend"
        assert harmless("\x1b[8mhidden\x1b[0m", stream) == "\\x1b[8mhidden\x1b[0m"
    os.close(terminal)
    with open(os.devnull, "w") as stream:
        assert harmless(EVIL, stream) == EVIL
    assert harmless(EVIL, None) == EVIL


def test_a_log_record_is_spelt_out_too() -> None:
    """`-v` prints what others named; it went to the terminal as it was."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    terminal, end = pty.openpty()
    try:
        root.handlers = []
        with os.fdopen(end, "w") as stream, contextlib.redirect_stderr(stream):
            log(argparse.Namespace(verbose=1))
            logging.getLogger("forebay").warning(EVIL)
            assert SPELT in os.read(terminal, 4096).decode()
    finally:
        root.handlers = before
        root.setLevel(level)
        os.close(terminal)


def test_a_cell_is_one_line() -> None:
    """A name with a line's end in it broke the table behind it."""
    assert table(["name", "n"], [["two\nlines", 1], ["one", 2]]).count("\n") == 2
