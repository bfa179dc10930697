"""`forebay pool warm`: start services before a program asks for them."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from forebay._working_directory import working_directory
from forebay.cli.exit_codes import NoSuchThingError
from forebay.cli.output import say, say_json
from forebay.cli.parser import Parser, UsageError, common
from forebay.errors import LimitError

EXAMPLES = """\
  forebay pool warm app.models:Digits        one
  forebay pool warm app.models:Digits -n 4   four, started in parallel

Programs share them that run with the same interpreter, working directory, import path and
environment: run it where you run them."""


def add(parts: Any) -> None:
    """Add the command to the command line."""
    summary = "have services ready before they are asked for"
    parser: Parser = parts.add_parser(
        "warm", help=summary, description=f"H{summary[1:]}.", examples=EXAMPLES
    )
    common(parser)
    parser.add_argument("target", metavar="MODULE:CLASS", help="a service class")
    parser.add_argument("-n", "--number", type=int, default=1, metavar="N", help="how many (1)")
    parser.add_argument("--timeout", default="60s", metavar="TIME", help="for all of them (60s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Start as many services as are missing, and leave them idle."""
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import ExitStack

    from forebay.cli.shared_pool import lent_at
    from forebay.config import parse_seconds
    from forebay.pool import SharedPool

    timeout = parse_seconds(options.timeout)
    service = service_class(options.target)
    with SharedPool(lent_at(options.path)) as pool:
        stats = pool.stats()
        limit = min(stats["max_size"], stats["max_leases"])
        if not 1 <= options.number <= limit:
            raise LimitError(
                f"-n {options.number}: this pool lends one program at most {limit} services; give"
                " 1 or more and no more than that, or start forebay serve with a larger --max-size",
                limit=limit,
                value=options.number,
            )
        # All are held at once, so that none is counted twice.
        with ExitStack() as held, ThreadPoolExecutor(options.number) as threads:
            begun = [pool.acquire(service, timeout=timeout) for _ in range(options.number)]
            entered = [threads.submit(acquire.__enter__) for acquire in begun]
            for acquire, future in zip(begun, entered, strict=True):
                if future.exception() is None:
                    held.push(acquire.__exit__)
            pids = [future.result().lease.pid for future in entered]
    if options.json:
        say_json({"name": service.__name__, "warm": len(pids), "service_pids": pids})
    else:
        say(f"{len(pids)} of {service.__name__} are warm: {', '.join(map(str, pids))}")
    return 0


def service_class(target: str) -> Any:
    """The class that a target names, found as a program in this directory would find it."""
    from forebay.pool import Service

    module, _, name = target.partition(":")
    if not module or not name or module.endswith(".py"):
        raise UsageError(
            f"{target!r} names no service class; write module:Class, as in app.models:Digits"
        )
    # In place of the command's directory, a program has its own there.
    sys.path[0] = working_directory()
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise NoSuchThingError(
            f"there is no module {error.name!r} on the import path of {working_directory()};"
            " change to the directory of your program"
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, Service)):
        raise NoSuchThingError(
            f"module {module!r} has no service class {name!r}; name a subclass of forebay.Service"
        )
    return found
