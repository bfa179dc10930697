"""Draw a terminal's last screen, from a real run of a command, as an SVG file.

`python -m tools.picture OUTPUT.svg [--columns N] [--rows N] [--title TEXT] -- COMMAND ...`

The command runs in a pseudo-terminal and may move the cursor, as a live display does, so a terminal
emulator (pyte) keeps the screen; rich, which the demo draws with, makes the picture of it.
What is shown is what the command wrote: nothing is edited, and a command that fails makes no file.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import itertools
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

READ_BYTES = 65536
FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)


def run_in_terminal(command: list[str], screen: pyte.Screen) -> int:
    """Run the command in a terminal of the screen's size; returns its exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        size = struct.pack("HHHH", screen.lines, screen.columns, 0, 0)
        fcntl.ioctl(sys.stdin.fileno(), termios.TIOCSWINSZ, size)
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
        try:
            os.execvp(command[0], command)
        finally:
            os._exit(127)
    stream = pyte.ByteStream(screen)
    try:
        while chunk := read(terminal):
            stream.feed(chunk)
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
    finally:
        os.close(terminal)  # hangs up, which ends the command when this one is interrupted
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def read(terminal: int) -> bytes:
    """What the command wrote next; empty at its end."""
    try:
        return os.read(terminal, READ_BYTES)
    except OSError:  # Linux reports EIO once the last writer has gone
        return b""


def color(name: str) -> str:
    """Name, as rich knows it, of a colour of pyte."""
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    if name.startswith("bright"):
        return "bright_" + color(name.removeprefix("bright"))
    return {"brown": "yellow"}.get(name, name)


def style(character: Char) -> Style:
    """How one cell is drawn."""
    return Style(
        color=color(character.fg),
        bgcolor=color(character.bg),
        bold=character.bold,
        italic=character.italics,
        underline=character.underscore,
        strike=character.strikethrough,
        reverse=character.reverse,
    )


def screen_text(screen: pyte.Screen) -> Text:
    """The screen's cells without the empty lines at its end."""
    text = Text()
    for line in range(len("\n".join(screen.display).rstrip().splitlines())):
        cells = (screen.buffer[line][column] for column in range(screen.columns))
        for look, run in itertools.groupby(cells, style):
            text.append("".join(cell.data for cell in run), look)
        text.append("\n")
    text.rstrip()
    return text


def draw(screen: pyte.Screen, title: str) -> str:
    """The screen as SVG; fonts come from the reader's machine, nothing is fetched."""
    console = Console(record=True, width=screen.columns, file=io.StringIO(), force_terminal=True)
    console.print(screen_text(screen), overflow="crop", no_wrap=True)
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id="terminal")
    return FONT_FACE.sub("", svg)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; what follows `--` is the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.picture", description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--title", default="")
    if "--" not in arguments:
        parser.error("the command follows after --")
    border = arguments.index("--")
    options = parser.parse_args(arguments[:border])
    options.command = arguments[border + 1 :]
    return options


def main(arguments: list[str]) -> int:
    """Run, draw, write; the exit status is the command's."""
    options = parse(arguments)
    screen = pyte.Screen(options.columns, options.rows)
    status = run_in_terminal(options.command, screen)
    if status != 0:
        print(f"no picture: the command ended with status {status}", file=sys.stderr)
        return status
    options.output.parent.mkdir(parents=True, exist_ok=True)
    svg = draw(screen, options.title or " ".join(options.command))
    options.output.write_text(svg, encoding="utf-8")
    print(f"wrote {options.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
