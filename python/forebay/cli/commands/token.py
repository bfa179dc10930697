"""`forebay token`: who may call a server over HTTP, and what."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.cli.commands import COMMANDS
from forebay.cli.commands.store.state import state_of
from forebay.cli.exit_codes import NoSuchThingError
from forebay.cli.output import note, say, say_json, table
from forebay.cli.parser import Parser, common, seconds

if TYPE_CHECKING:
    from forebay.gateway._internal import Token

EXAMPLES = """\
  forebay token add ci --role submit --expires 90d   prints the token, once
  forebay token add ann --role read --app tune.py    of the server of tune.py
  forebay token add lab --role submit --quota 100    no more unfinished requests than that
  forebay token ls                                   names and roles; no token is kept
  forebay token rm ci                                refused from the next request on
  forebay token link                                 opens the server in a browser, once

a client finds its token in FOREBAY_TOKEN, FOREBAY_TOKEN_FILE or --token-file"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser: Parser = commands.add_parser(
        "token",
        help=COMMANDS["token"].summary,
        description="Say who may call the gateway of a server (forebay serve --http), and what. The"
        " server need not run; one that runs follows within a second.",
        examples=EXAMPLES,
    )
    parts = parser.add_subparsers(metavar="PART", dest="part", required=True)
    added = _part(parts, "add", "make a token, and print it once", _add)
    added.add_argument("name", metavar="NAME", help="of its holder: the submitter of its requests")
    added.add_argument(
        "--role",
        choices=("read", "submit", "admin"),
        required=True,
        help="what it may do: look, also submit and cancel, or everything",
    )
    added.add_argument(
        "--expires", type=seconds, metavar="TIME", help="refused after so long, such as 90d (never)"
    )
    added.add_argument(
        "--quota",
        type=int,
        metavar="N",
        help="most unfinished requests (executor.max_queued_per_submitter)",
    )
    _part(parts, "ls", "list the tokens", _list)
    removed = _part(parts, "rm", "remove tokens", _remove)
    removed.add_argument("name", metavar="NAME", nargs="+", help="of a token")
    _part(parts, "link", "print a link that opens the server in a browser, once", _link)


def _part(
    parts: Any, name: str, summary: str, run: Callable[[Path, argparse.Namespace], int]
) -> Parser:
    parser: Parser = parts.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", examples=EXAMPLES
    )
    common(parser, path=False)
    parser.add_argument(
        "--app",
        metavar="TARGET",
        help="whose server: tune.py:app, package.module:app (default: FOREBAY_APP, forebay.toml,"
        " the server that was started last)",
    )
    parser.set_defaults(run=lambda options: run(state_of(options.app), options))
    return parser


def _add(state: Path, options: argparse.Namespace) -> int:
    """Make a token. Its text goes to stdout alone, so that a pipe gets it and nothing else."""
    from forebay.executor._internal import TOKENS
    from forebay.gateway._internal import Role, add_token

    token, text = add_token(
        state / TOKENS,
        options.name,
        Role.named(options.role),
        expires_s=options.expires,
        quota=options.quota,
    )
    if options.json:
        say_json({**_members(token), "token": text})
    else:
        say(text)
        note("forebay: keep it now: it is shown this once, and is kept nowhere")
    return 0


def _list(state: Path, options: argparse.Namespace) -> int:
    from forebay.executor._internal import TOKENS
    from forebay.gateway._internal import read_tokens

    path = state / TOKENS
    tokens = read_tokens(path) if path.exists() else []
    if options.json:
        for one in tokens:
            say_json(_members(one))
    elif tokens:
        say(table(("name", "role", "quota", "made", "expires"), map(_row, tokens)))
    else:
        note("forebay: there are no tokens; make one with: forebay token add NAME --role submit")
    return 0


def _remove(state: Path, options: argparse.Namespace) -> int:
    from forebay.executor._internal import TOKENS
    from forebay.gateway._internal import remove_token

    missing = [name for name in options.name if not remove_token(state / TOKENS, name)]
    if missing:
        raise NoSuchThingError(f"there is no token {missing[0]!r}; see: forebay token ls")
    return 0


def _link(state: Path, options: argparse.Namespace) -> int:
    """The address comes from the file of the token `local`, which the server has written."""
    from forebay._private_file import read_private
    from forebay.executor._internal import LOCAL_TOKEN
    from forebay.gateway._internal import LINK_S, LOCAL, new_link

    try:
        lines = read_private(state / LOCAL_TOKEN, 4096).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        lines = []
    if len(lines) < 2:
        raise NoSuchThingError(
            "the server has no gateway; start it with: forebay serve APP --http 127.0.0.1:8000"
        )
    link = new_link(state, lines[1], LOCAL)
    if options.json:
        say_json({"link": link, "expires_s": LINK_S})
    else:
        say(link)
    return 0


def _members(token: Token) -> dict[str, Any]:
    from forebay.gateway._internal import rfc3339

    return {
        "name": token.name,
        "role": token.role.word,
        "made_at": rfc3339(token.made),
        "expires_at": rfc3339(token.expires),
        "expired": token.has_expired(time.time()),
        "quota": token.quota,
    }


def _row(token: Token) -> tuple[str, str, str, str, str]:
    told = _members(token)
    expires = "never" if token.expires is None else told["expires_at"]
    return (
        token.name,
        token.role.word,
        "-" if token.quota is None else str(token.quota),
        told["made_at"],
        f"{expires} (expired)" if told["expired"] else expires,
    )
