"""`forebay cordon`: let a server take no more submissions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from forebay.cli.output import say_json
from forebay.cli.parser import Parser, UsageError, command, talking
from forebay.cli.session import session, tell

if TYPE_CHECKING:
    from forebay.executor import Client

EXAMPLES = """\
  forebay cordon                          submissions are refused; what was accepted goes on
  forebay cordon --reason "a new kernel"  who is refused is told the reason
  forebay cordon --undo                   it serves again; after forebay drain, too"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "cordon",
        run,
        description="Let a server take no more submissions: they are refused, with who asked for"
        " that and why. What was accepted goes on. It lasts until --undo, or the end of the server:"
        " the next one serves.",
        examples=EXAMPLES,
    )
    cordoning(parser)
    parser.add_argument("--undo", action="store_true", help="take submissions again")


def cordoning(parser: Parser) -> None:
    """Options of commands that let a server refuse submissions."""
    talking(parser)
    parser.add_argument("--reason", metavar="TEXT", help="what those who are refused are told")


def ask(client: Client, options: argparse.Namespace, *, dispatches: bool) -> Any:
    """Have a server refuse submissions, and begin what it has accepted, or nothing more."""
    return client.ask("cordon", options.reason or "", dispatches)


def run(options: argparse.Namespace) -> int:
    """Ask for it."""
    if options.undo and options.reason is not None:
        raise UsageError("--reason is for a cordon, and --undo ends one; give one of them")
    with session(options) as client:
        told = client.ask("uncordon") if options.undo else ask(client, options, dispatches=True)
    if options.json:
        say_json(told)
    elif not options.undo:
        tell(options, "forebay: submissions are refused; undo it with: forebay cordon --undo")
    elif told.get("undone"):
        tell(options, "forebay: the server takes submissions again")
    else:
        tell(options, "forebay: there was no cordon; the server takes submissions")
    return 0
