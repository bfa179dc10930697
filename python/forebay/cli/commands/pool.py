"""`forebay pool`: list the services of the shared pool, and change it."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING, Any

from forebay.cli import pool_warm
from forebay.cli.commands import COMMANDS
from forebay.cli.exit_codes import NoSuchThingError
from forebay.cli.output import note, say, say_json, table
from forebay.cli.parser import Parser, common
from forebay.cli.shared_pool import lent_at

if TYPE_CHECKING:
    from forebay.pool import SharedPool

STATES = ("idle", "leased", "starting", "settling")

EXAMPLES = """\
  forebay pool ls                        kinds of services, and how many are idle
  forebay pool leases --json             who holds what, for how long: an object a line
  forebay pool warm app.models:Digits -n 2
  forebay pool drain Digits              end them; those on lease when they come back"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser: Parser = commands.add_parser(
        "pool",
        help=COMMANDS["pool"].summary,
        description="Look at the pool that `forebay serve` lends from, alone or for an application,"
        " and change it.",
        examples=EXAMPLES,
    )
    parts = parser.add_subparsers(metavar="PART", dest="part", required=True)
    _part(parts, "ls", "kinds of services and their states", list_kinds)
    leases = _part(parts, "leases", "services on lease, their holders, since when", list_leases)
    leases.add_argument("name", nargs="?", help="of a class or program; default: all")
    drain_ = _part(parts, "drain", "end services, those on lease when they come back", drain)
    drain_.add_argument("name", nargs="?", default="", help="of a class or program; default: all")
    pool_warm.add(parts)


def _part(parts: Any, name: str, summary: str, run: Any) -> Parser:
    parser: Parser = parts.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", examples=EXAMPLES
    )
    common(parser)
    parser.set_defaults(run=lambda options: _with_pool(options, run))
    return parser


def _with_pool(options: argparse.Namespace, run: Any) -> int:
    from forebay.pool import SharedPool

    with SharedPool(lent_at(options.path)) as pool:
        run(pool, options)
    return 0


def list_kinds(pool: SharedPool, options: argparse.Namespace) -> None:
    """Print each kind with the number of its services in each state."""
    stats, services = pool.stats(), pool.services()
    kinds: dict[str, Counter[str]] = {}
    for service in services:
        kinds.setdefault(service["name"], Counter())[service["state"]] += 1
    counts = {name: {state: kinds[name][state] for state in STATES} for name in sorted(kinds)}
    if options.json:
        for name, states in counts.items():
            say_json({"name": name, "services": sum(states.values()), **states})
        return
    if counts:
        say(table(("kind", *STATES), [(name, *states.values()) for name, states in counts.items()]))
    note(
        f"{stats['live']} of at most {stats['max_size']} services, {stats['waiters']} callers wait,"
        f" {stats['programs'] - 1} other programs connected; lender: process {stats['pid']}"
    )


def list_leases(pool: SharedPool, options: argparse.Namespace) -> None:
    """Print each leased service, those leased longest first."""
    held = [
        service
        for service in pool.services()
        if service["holder"] and options.name in (None, service["name"])
    ]
    held.sort(key=lambda service: -service["age_s"])
    if options.json:
        for service in held:
            say_json(
                {
                    "slot": service["slot"],
                    "name": service["name"],
                    "service_pid": service["pid"] or None,
                    "state": service["state"],
                    "holder_pid": service["holder"],
                    "age_s": round(service["age_s"], 3),
                }
            )
        return
    if held:
        rows = [
            (one["name"], one["pid"] or "-", one["state"], one["holder"], f"{one['age_s']:.1f}")
            for one in held
        ]
        say(table(("kind", "process", "state", "holder", "seconds"), rows))
    else:
        note("nothing is on lease")


def drain(pool: SharedPool, options: argparse.Namespace) -> None:
    """End services: idle ones now, the others when they are given back."""
    ended, marked = pool.drain(options.name)
    if options.name and not ended and not marked:
        known = sorted({service["name"] for service in pool.services()})
        has = f"it has {', '.join(known)}" if known else "it is empty"
        raise NoSuchThingError(
            f"the shared pool has no service named {options.name!r} ({has}); see: forebay pool ls"
        )
    if options.json:
        say_json({"ended": ended, "marked": marked})
    else:
        say(f"{ended} ended, {marked} will be when they come back")
