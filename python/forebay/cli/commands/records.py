"""`forebay records`: what a record file holds, and whether it is whole."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from forebay.cli.commands import COMMANDS
from forebay.cli.output import is_terminal, murmur, note, say, say_json, table
from forebay.cli.parser import Parser, common

EXAMPLES = """\
  forebay records inspect replay.fbr            dtype, records, capacity, commits
  forebay records inspect replay.fbr --verify   read every record and check its checksum
  forebay records inspect replay.fbr --json"""

SHOWN_MAX = 10
"""Numbers of damaged records that are printed; all of them with --json."""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser: Parser = commands.add_parser(
        "records",
        help=COMMANDS["records"].summary,
        description="Look into a file of `forebay.RecordFile`, also while it is appended to.",
        examples=EXAMPLES,
    )
    parts = parser.add_subparsers(metavar="PART", dest="part", required=True)
    summary = "what a file holds, and whether it is whole"
    part: Parser = parts.add_parser(
        "inspect",
        help=summary,
        description="What a file holds. 1 is the exit code where it is damaged.",
        examples=EXAMPLES,
    )
    common(part, path=False)
    part.add_argument("file", metavar="FILE", help="a record file")
    part.add_argument(
        "--verify", action="store_true", help="read every record and check its checksum"
    )
    part.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what the file holds; 1 if it is damaged."""
    from forebay.blockio._internal import inspect, verify
    from forebay.cli.exit_codes import FAILED, SUCCEEDED, NoSuchThingError
    from forebay.errors import BrokenError

    try:
        found = inspect(options.file)
        if options.verify:
            checked, wrong = verify(options.file, _progress(options))
            found |= {"verified": checked, "damaged": wrong}
    except OSError as error:
        if isinstance(error, BrokenError):
            raise
        raise NoSuchThingError(
            f"{options.file} cannot be opened: {error.strerror}; give the path of a record file"
        ) from error
    except BrokenError as error:
        if options.json:
            say_json({"path": options.file, "broken": str(error)})
        else:
            note(f"forebay: {error}")
        return FAILED
    if options.json:
        say_json(found)
    else:
        _show(dict(found))
    # A crash may leave a torn commit block; a wrong copy of one is damage.
    harmed = any(commit is None or commit["damaged_copies"] for commit in found["commits"])
    return FAILED if harmed or found.get("damaged") else SUCCEEDED


def _show(found: dict[str, Any]) -> None:
    damaged = found.pop("damaged", None)
    commits = [_commit(one) for one in found.pop("commits")]
    rows = [(name, "-" if value is None else value) for name, value in found.items()]
    rows += [(f"commit block {place}", told) for place, told in enumerate(commits)]
    if damaged is not None:
        rows.append(("damaged", len(damaged)))
    say(table(("", "value"), rows))
    if damaged:
        named = ", ".join(map(str, damaged[:SHOWN_MAX]))
        more = ", ..." if len(damaged) > SHOWN_MAX else ""
        note(f"damaged records, counted from 0 since the file was made: {named}{more}")


def _commit(commit: dict[str, Any] | None) -> str:
    """The text about a commit block, and whether it is whole."""
    if commit is None:
        return "damaged; it was the older one, and opening for appends repairs it"
    told = f"{commit['sequence']}: {commit['appended']} records"
    if commit["damaged_copies"]:
        return f"{told} (one of two copies is damaged; opening for appends repairs it)"
    return f"{told} (torn by a crash)" if commit["torn"] else told


def _progress(options: argparse.Namespace) -> Any:
    """Shows how far the check is, in one line of a terminal."""
    shown = is_terminal(sys.stderr) and not options.json

    def tell(done: int, total: int) -> None:
        if shown:
            end = "\n" if done == total else ""
            murmur(
                f"\rverified {done} of {total} records ({done * 100 // total} %){end}", is_log=True
            )

    return tell
