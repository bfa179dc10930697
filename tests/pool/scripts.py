"""Programs for the tests: users of a pool, or run by one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import forebay

ROOT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-I", "-S")

# Programs for `python`: each says that it is ready, on the socket that its first argument names.
ECHO = """
    import socket, sys
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.send(b"!")
    while data := connection.recv(4096):
        connection.sendall(data)
"""

DELAYED = """
    import socket, sys, time
    connection = socket.socket(fileno=int(sys.argv[1]))
    time.sleep(float(sys.argv[2]))
    connection.send(b"!")
    connection.recv(1)
"""


def run(
    *arguments: str | Path, cwd: Path, stdin: str | None = None, timeout: float = 20
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with arguments, in a directory; never waits longer than `timeout`."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(cwd)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def write(path: Path, program: str) -> Path:
    """Write a program given as an indented text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(program))
    return path


def python(directory: Path, program: str, *arguments: str, reuse: bool = True) -> forebay.Command:
    """A Python program as a command."""
    path = write(directory / "backend.py", program)
    return forebay.Command([*PYTHON, str(path), "{fd}", *arguments], reuse=reuse)
