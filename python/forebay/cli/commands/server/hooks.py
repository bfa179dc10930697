"""`forebay hooks`: what a server calls when a request is dead or a limit is near."""

from __future__ import annotations

import argparse
from typing import Any, Final

from forebay.cli.output import say, say_json, table
from forebay.cli.parser import command, talking
from forebay.cli.session import session, tell

EXAMPLES = """\
  forebay hooks                 which there are, what waits, the last error
  forebay hooks test ops        call one now, and print the answer
  forebay hooks log             what was called when, and how it went
  forebay hooks log --json"""

HERE: Final = "hooks are shown on the server's machine"
LINES: Final = 50
TEST_S: Final = 30.0
"""A try takes ten seconds at most, and a server may be busy besides."""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "hooks",
        run,
        description="Show the hooks of a server, and call one. A hook is configured in the file of"
        " the user: [[hooks]] with name, on, and url or command; see docs/guides/hooks.md.",
        examples=EXAMPLES,
    )
    talking(parser)
    parser.add_argument(
        "act", nargs="?", choices=("ls", "test", "log"), default="ls", help="list them (ls)"
    )
    parser.add_argument("name", nargs="?", help="of the hook that is to be called")


def run(options: argparse.Namespace) -> int:
    """List the hooks, call one, or print their log."""
    from forebay.cli.exit_codes import FAILED
    from forebay.cli.parser import UsageError

    if (options.act == "test") != (options.name is not None):
        raise UsageError("write: forebay hooks, forebay hooks log, or forebay hooks test NAME")
    if options.act == "test" and options.timeout is None:
        options.timeout = TEST_S
    with session(options, here=HERE) as client:
        if options.act == "ls":
            _list(options, client.ask("hooks")["hooks"])
        elif options.act == "log":
            _log(options, client.ask("hook_log", LINES)["calls"])
        else:
            told = client.ask("hook_test", options.name)
            _tell_test(options, told)
            return 0 if told["delivered"] else FAILED
    return 0


def _list(options: argparse.Namespace, hooks: list[dict[str, Any]]) -> None:
    if options.json:
        for one in hooks:
            say_json(one)
    elif hooks:
        head = ("name", "on", "calls", "signed", "waiting", "given up", "last error")
        say(table(head, [_row(one) for one in hooks]))
    else:
        tell(
            options,
            "this server has no hooks; write [[hooks]] into ~/.config/forebay/forebay.toml and"
            " start it again",
        )


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    on = ",".join(one["on"]) if one["is_configured"] else "(not configured)"
    if one["names"]:
        on += f" of {','.join(one['names'])}"
    signed = "yes" if one["is_signed"] else "no"
    counts = one["waiting"], one["given_up"]
    return one["name"], on, one["target"] or "-", signed, *counts, one["error"] or "-"


def _log(options: argparse.Namespace, calls: list[dict[str, Any]]) -> None:
    for one in calls:
        if options.json:
            say_json(one)
        else:
            say(_line(one))
    if not calls:
        tell(options, "no hook was called yet; call one with: forebay hooks test NAME")


def _line(one: dict[str, Any]) -> str:
    if one["outcome"] == "dropped":
        return f"{one['at']} dropped {one['count']} calls, since more than 10,000 waited"
    what = " ".join(it for it in (one["event"], one["id"], one["name"]) if it)
    again = "" if one["next_at"] is None else f"; again at {one['next_at']}"
    return (
        f"{one['at']} {one['hook']} {one['outcome']} {what}: try {one['try']},"
        f" {one['seconds']:g} s, {one['said']}{again}"
    )


def _tell_test(options: argparse.Namespace, told: dict[str, Any]) -> None:
    if options.json:
        say_json(told)
    else:
        word = "delivered" if told["delivered"] else "failed"
        say(f"{told['hook']}: {word} in {told['seconds']:g} s: {told['said']}")
