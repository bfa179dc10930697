"""`forebay completion`: a script that completes this command in a shell."""

from __future__ import annotations

import argparse
from typing import Any, Final

from forebay.cli.completion_scripts import IDS, NAMES, SCRIPTS
from forebay.cli.output import say
from forebay.cli.parser import Parser, command

EXAMPLES = """\
  forebay completion bash > ~/.local/share/bash-completion/completions/forebay
  forebay completion zsh > "${fpath[1]}/_forebay"
  forebay completion fish > ~/.config/fish/completions/forebay.fish"""

SHELLS = ("bash", "zsh", "fish")

ASK_S: Final = 0.1
"""The longest wait for a server's answer: a user waits for the completion."""

SHOWN = 50


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "completion", run, examples=EXAMPLES)
    parser.add_argument("shell", choices=SHELLS, help="whose script")
    parser.add_argument("--words", metavar="COMMAND", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Print the script, or the words that a script asks for while a user types."""
    if options.words is not None:
        for word in words_of(options.words):
            say(word)
        return 0
    say(SCRIPTS[options.shell](tree()).rstrip())
    return 0


def tree() -> dict[str, tuple[str, list[str]]]:
    """Every command, with its summary, and its subcommands and options."""
    from forebay.cli.command_line import parser

    top = parser(every=True)
    return {"": ("", _words(top))} | {
        name: (summary, _words(sub)) for name, summary, sub in _commands(top)
    }


def words_of(name: str) -> list[str]:
    """Names of requests or ids, from a running server or its manifest file; none if it is slow."""
    from forebay.errors import Error

    try:
        if name in NAMES:
            from forebay.cli.manifest import cached

            manifest = cached(argparse.Namespace(url=None, app=None))
            return [one["name"] for one in manifest["requests"]] if manifest else []
        return _ids() if name in IDS else []
    except (Error, OSError):
        return []


def _ids() -> list[str]:
    from forebay.executor import Client
    from forebay.executor._internal import newest

    running = newest()
    if running is None:
        return []
    client = Client(f"unix://{running.socket}", timeout=ASK_S)
    try:
        return ["@last", *(one["id"] for one in client.list(limit=SHOWN))]
    finally:
        client.close()


def _commands(top: Parser) -> list[tuple[str, str, Parser]]:
    """Name, summary and parser of each command."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            return [(name, helps.get(name, ""), sub) for name, sub in action.choices.items()]
    return []


def _words(parser: Parser) -> list[str]:
    words = [name for name, _, _ in _commands(parser)]
    for action in parser._actions:
        words += [name for name in action.option_strings if name.startswith("--")]
        if not action.option_strings and action.choices and not words:
            words += list(action.choices)
    return words
