"""`forebay chaos`: kill, stop and starve a server under requests, and look that nothing is lost."""

from __future__ import annotations

import argparse
import json
import secrets
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from forebay.cli.exit_codes import INTERRUPTED, TERMINATED
from forebay.cli.output import note, say, say_json, table
from forebay.cli.parser import Parser, UsageError, command, common

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from forebay.testing._internal import Experiment, Outcome

EXAMPLES = """\
  forebay chaos                                    one minute of every fault this machine allows
  forebay chaos --seed 7 --minutes 2               the plan of a run again, drawn from its seed
  forebay chaos --faults kill-server,full-disk     these faults alone
  forebay chaos --list                             the faults, and how each is injected
  forebay chaos tune.py --request 'tune={"budget": 3}'     over an application of yours
  forebay chaos tune.py --request tune --running   its server, started with --allow-chaos"""

SEED_BITS = 16
WRONG_SHOWN = 20


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "chaos",
        run,
        description="Start a server in a directory of its own, submit requests to it, and meanwhile"
        " kill, stop and starve everything that belongs to it, as a seed decides. Afterwards print"
        " which faults came and were survived, and whether each accepted request has ended once and"
        " nothing is left. Exit code: 0 all is well, 1 something is not, 2 the command line is"
        " wrong, 130 Ctrl-C.",
        examples=EXAMPLES,
    )
    common(parser, path=False)
    _add_options(parser)


def _add_options(parser: Parser) -> None:
    parser.add_argument("--quiet", action="store_true", help="print the table alone")
    parser.add_argument(
        "target",
        nargs="?",
        metavar="APP",
        help="tune.py, tune.py:app, package:app (default: one that uses all five systems)",
    )
    parser.add_argument(
        "--request",
        action="append",
        default=[],
        metavar="NAME[=JSON]",
        help="of APP: a request to submit, and its arguments; may be repeated",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="draws the plan (a random one)")
    parser.add_argument(
        "--minutes", type=float, default=1.0, metavar="M", help="for which faults come (1)"
    )
    parser.add_argument(
        "--faults", metavar="NAME,...", default="", help="these alone (all that are possible)"
    )
    parser.add_argument("--list", action="store_true", help="print the faults and leave")
    parser.add_argument(
        "--running",
        action="store_true",
        help="strike the server of APP that runs; it was started with --allow-chaos",
    )


def run(options: argparse.Namespace) -> int:
    """Run an experiment; its exit code."""
    if options.list:
        return _list(options)
    from forebay.testing._internal import Design, Experiment, chosen_faults

    if options.minutes <= 0:
        raise UsageError(f"--minutes is {options.minutes:g}; give a number above 0")
    _check_target(options)
    design = Design(
        seed=secrets.randbits(SEED_BITS) if options.seed is None else options.seed,
        seconds=options.minutes * 60.0,
        faults=chosen_faults(name for name in options.faults.split(",") if name),
        target=options.target or "",
        requests=dict(map(_request, options.request)),
        is_running=options.running,
    )

    def tell(text: str) -> None:
        if not options.quiet:
            note(text)

    tell(f"forebay chaos --seed {design.seed} --minutes {options.minutes:g}")
    experiment = Experiment(design, tell)
    with _ended_in_order(experiment) as signals:
        outcome = experiment.run()
    _report(outcome, options)
    if outcome.interrupted:
        return TERMINATED if signals[:1] == [signal.SIGTERM] else INTERRUPTED
    return 0 if outcome.is_good else 1


@contextmanager
def _ended_in_order(experiment: Experiment) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM interrupt it, and a second signal at once; which signals came."""
    signals: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        experiment.interrupt()
        if len(signals) > 1:
            raise KeyboardInterrupt

    before = [(number, signal.signal(number, end)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield signals
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _check_target(options: argparse.Namespace) -> None:
    if options.target is None and (options.request or options.running):
        option = "--request" if options.request else "--running"
        raise UsageError(f"{option} is for an application of yours; name one: forebay chaos APP")
    if options.target is not None and not options.request:
        raise UsageError(
            f"which requests of {options.target} are to be submitted? give --request NAME, or"
            " --request 'NAME={...}' with its arguments"
        )


def _request(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of `NAME={...}`."""
    name, equals, given = text.partition("=")
    try:
        arguments = json.loads(given) if equals else {}
    except ValueError as error:
        raise UsageError(f"--request {text}: the arguments are no JSON: {error}") from None
    if not name or not isinstance(arguments, dict):
        raise UsageError(f'--request {text}: write NAME, or NAME={{"argument": value}}')
    return name, arguments


def _list(options: argparse.Namespace) -> int:
    from forebay.testing._internal import FAULTS

    if options.json:
        for fault in FAULTS.values():
            say_json({"fault": fault.what, "injected": fault.how, "undone": fault.undone})
    else:
        rows = [(fault.what, fault.how, fault.undone) for fault in FAULTS.values()]
        say(table(("fault", "injected by", "undone when"), rows))
    return 0


def _report(outcome: Outcome, options: argparse.Namespace) -> None:
    if options.json:
        say_json(outcome.to_json())
        return
    rows = [
        (row.what, row.injected, row.survived, f"not injected: {row.reason}" if row.reason else "")
        for row in outcome.rows
    ]
    say(table(("fault", "injected", "survived", ""), rows))
    verdict = outcome.verdict
    if verdict is not None:
        ends = ", ".join(f"{count} {status}" for status, count in sorted(verdict.ended.items()))
        causes = sorted(verdict.causes.items(), key=lambda item: -item[1])
        told = "; ".join(f"{count} {cause}" for cause, count in causes)
        say(
            f"\naccepted {verdict.accepted}, ended: {ends or 'none'}; lost {verdict.lost}\n"
            f"runs {verdict.begun}: {verdict.begun_again} requests ran again, as they may;"
            f" {verdict.doubled} that may not\n"
            f"ends without a result: {told or 'none'}\n"
            f"refused {verdict.refused}, unknown whether accepted {verdict.unknown}"
        )
    wrong = outcome.everything_wrong
    for text in wrong[:WRONG_SHOWN]:
        say(f"wrong: {text}")
    if len(wrong) > WRONG_SHOWN:
        say(f"wrong: and {len(wrong) - WRONG_SHOWN} more")
    word = "interrupted" if outcome.interrupted else "all is well" if outcome.is_good else "WRONG"
    say(f"seed {outcome.seed}, {outcome.seconds:g} s: {word}")
