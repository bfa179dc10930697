"""`forebay serve`: lend warm services to the programs of this user, until it is told to end."""

from __future__ import annotations

import argparse
import signal
from types import FrameType
from typing import Any

from forebay.cli._exit import code_of_signal
from forebay.cli._output import note, say, say_json
from forebay.cli._parser import Parser, common

EXAMPLES = """\
  forebay serve                                     at the usual place, as many as cores
  forebay serve --max-size 8 --idle-timeout 10min   eight at once, ended when idle for long
  forebay serve --leases-max 2                      no program holds more than two

in a program:
  pool = forebay.SharedPool()
  with pool.acquire(Digits) as digits: ..."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add(commands: Any) -> None:
    """Add the command to the command line."""
    summary = "lend warm services to the programs of one user"
    parser: Parser = commands.add_parser(
        "serve",
        help=summary,
        description="Lend warm services to your programs until Ctrl-C or SIGTERM.",
        examples=EXAMPLES,
    )
    common(parser)
    parser.add_argument("--quiet", action="store_true", help="do not say where it listens")
    parser.add_argument("--max-size", type=int, metavar="N", help="services at once (cores)")
    parser.add_argument(
        "--leases-max", type=int, metavar="N", help="services that one program may hold (all)"
    )
    parser.add_argument(
        "--waiters-max",
        type=int,
        default=1024,
        metavar="N",
        help="requests of one program that may wait (1024)",
    )
    for name, what, default in (
        ("idle", "an idle service is ended after so long", "5min"),
        ("reset", "a reset may take so long", "1s"),
        ("start", "a start may take so long", "2min"),
    ):
        parser.add_argument(f"--{name}-timeout", metavar="TIME", help=f"{what} ({default})")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve; returns how it was told to end, as an exit code."""
    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        ended.append(number)

    for number in ENDING:
        signal.signal(number, end)
    lender = _lender(options)
    try:
        # A signal wakes the lender, which waits without running Python.
        signal.set_wakeup_fd(lender.stop_fd, warn_on_full_buffer=False)
        _announce(options, lender)
        while not ended:
            lender.serve()
    finally:
        signal.set_wakeup_fd(-1)
        lender.close()
    if not options.quiet:
        note("forebay: every service is ended")
    return code_of_signal(ended[0])


def _lender(options: argparse.Namespace) -> Any:
    from forebay.config import PoolConfig, parse_seconds
    from forebay.pool import Lender

    times = {
        name: None if text is None else parse_seconds(text)
        for name in ("idle_timeout", "reset_timeout", "start_timeout")
        for text in (getattr(options, name),)
    }
    config = PoolConfig.given(max_size=options.max_size, **times)
    return Lender(
        options.path,
        config=config,
        leases_max=options.leases_max,
        waiters_max=options.waiters_max,
    )


def _announce(options: argparse.Namespace, lender: Any) -> None:
    import os

    if options.json:
        told = {"path": str(lender.path), "pid": os.getpid(), "max_size": lender.config.max_size}
        say_json({"event": "listening", **told})
    elif not options.quiet:
        say(
            f"lending services at {lender.path} (process {os.getpid()}, "
            f"at most {lender.config.max_size} services); end it with Ctrl-C"
        )
