"""The common part of `run` and `submit`: which request, its arguments, how it is submitted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.cli.arguments import has_parameter, request_parser, take_arguments
from forebay.cli.exit_codes import NoSuchThingError
from forebay.cli.manifest import cached, find_request, listing, manifest_of, split_target
from forebay.cli.output import say, say_json
from forebay.cli.parser import Parser, UsageError, command, seconds, talking
from forebay.cli.session import limit_wait, session

if TYPE_CHECKING:
    from forebay.executor import Client, Request, Submit


WHOSE = "--url and --app say whose request it is; give them before its name"


class Call(NamedTuple):
    """What the command line asks for."""

    name: str
    arguments: dict[str, Any]
    submit: Submit
    gives_items: bool


def add_submission(
    commands: Any,
    name: str,
    own: Callable[[Any], None],
    run: Callable[[argparse.Namespace], int],
    *,
    description: str,
    examples: str,
) -> None:
    """Add a command that submits a request.

    Args:
        commands: of the command line.
        name: of the command.
        own: adds its own options, in front of the request's name or behind it.
        run: called with the options unless help is asked for.
        description: what it does, for its help.
        examples: after the help.
    """

    def start(options: argparse.Namespace) -> int:
        if _help_wanted(parser, options) or _show_request_help(options, name, own):
            return 0
        _settle(options)
        return run(options)

    parser = command(
        commands, name, start, description=description, examples=examples, add_help=False
    )
    own(parser)
    _words(parser)


def say_id(request: Request, options: argparse.Namespace) -> None:
    """Print the id of a request, once it is on disk."""
    if options.json:
        say_json({"id": request.id, "name": request.name})
    else:
        say(request.id)


def submitting(parser: Any) -> None:
    """Options of a submission."""
    talking(parser)
    parser.add_argument("--no-start", action="store_true", help="start no server where none runs")
    parser.add_argument("--priority", type=int, metavar="N", help="higher runs first")
    parser.add_argument("--lane", choices=("short", "long"), help="where it runs")
    parser.add_argument("--retries", type=int, metavar="N", help="further attempts when one fails")
    parser.add_argument("--memory", metavar="SIZE", help="what it needs, such as 300MB")
    parser.add_argument("--time-limit", metavar="TIME", help="that one attempt may run")
    parser.add_argument("--delay", metavar="TIME", help="before it runs")
    parser.add_argument(
        "--after", metavar="ID", action="append", help="run when that has succeeded"
    )
    parser.add_argument("--idempotency", metavar="TEXT", help="a second one with it is the first")
    parser.add_argument("--submitter", metavar="NAME", help="for whom; they take turns")


def submit(
    client: Client, options: argparse.Namespace, name: str, own: Callable[[Any], None]
) -> tuple[Request, bool]:
    """Submit the request of the command line, with arguments of the types that the server knows.

    Returns:
        The request, and whether it is a generator.

    The id, or the end that the command waits for, shows whether it was accepted.
    """
    call = _call(client, options, name, own)
    sent = client.submit_nowait(call.name, arguments=call.arguments, options=call.submit)
    return sent, call.gives_items


def _help_wanted(parser: Parser, options: argparse.Namespace) -> bool:
    """Print help if the command line asks for it; False if it does not.

    Raises:
        UsageError: the command line names no request and asks for no help.
    """
    if options.words and not options.help:
        return False
    if not options.help:
        parser.error("the name of a request is missing")
    if options.words:
        options.words.append("--help")
        return False
    requests = listing(cached(options))
    text = parser.format_help()
    say(f"{text}\n{requests}" if requests else text.rstrip())
    return True


def _show_request_help(options: argparse.Namespace, name: str, own: Callable[[Any], None]) -> bool:
    """Print the help of a request, from the manifest that the last server left if that is fresh.

    Returns:
        Whether the command line asks for it.
    """
    if not {"-h", "--help"} & set(options.words[1:]):
        return False
    wanted, of_target, _ = split_target(options)
    manifest = cached(options)
    if manifest is None:
        with session(options, start=not options.no_start) as client:
            manifest = manifest_of(client)
    request = find_request(manifest, wanted, of_target=of_target)
    parser = request_parser(name, request, manifest["definitions"], own)
    parser.print_help(sys.stdout)
    return True


def _settle(options: argparse.Namespace) -> None:
    """Find out what is needed before a client is made: which server, and which request of it.

    Raises:
        UsageError: `--app` and the TARGET name different applications.
    """
    given = options.app
    split_target(options)
    if given is not None and options.app != given:
        raise UsageError(
            f"--app {given} and the target {options.app} are given both; leave one of them out"
        )
    behind = Parser(add_help=False)
    behind.add_argument("--quiet", action="store_true", default=argparse.SUPPRESS)
    behind.add_argument("--no-start", action="store_true", default=argparse.SUPPRESS)
    behind.add_argument("--timeout", dest="timeout_behind", default=None)
    behind.parse_known_args(options.words[1:], options)
    options.timeout_in_front = options.timeout
    if options.timeout_behind is not None and not _has_timeout(options):
        with suppress(argparse.ArgumentTypeError):  # reported once the request is known
            options.timeout = seconds(options.timeout_behind)


def _has_timeout(options: argparse.Namespace) -> bool:
    """Whether `--timeout` behind the request's name is a parameter of it.

    By the manifest that a server left. Without one, the option is taken as the command's until the
    server has sent its manifest.
    """
    wanted, of_target, _ = split_target(options)
    manifest = cached(options)
    if manifest is None:
        return False
    try:
        request = find_request(manifest, wanted, of_target=of_target)
    except (NoSuchThingError, UsageError):
        return False
    return has_parameter(request, "timeout")


def _words(parser: Parser) -> None:
    """The name of the request, and everything after it."""
    parser.add_argument("-h", "--help", action="store_true", help="show this, or help for NAME")
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="NAME | TARGET [--ARGUMENT VALUE ...]",
        help="a request by its name, or tune.py:tune; its arguments are options: NAME --help",
    )


def _call(
    client: Client, options: argparse.Namespace, name: str, own: Callable[[Any], None]
) -> Call:
    wanted, of_target, rest = split_target(options)
    manifest = manifest_of(client)
    try:
        request = find_request(manifest, wanted, of_target=of_target)
    except NoSuchThingError:
        if {"--app", "--url"} & set(rest):  # of another server than the one that was asked
            raise UsageError(WHOSE) from None
        raise
    parser = request_parser(name, request, manifest["definitions"], own)
    if has_parameter(request, "timeout"):
        options.timeout = options.timeout_in_front
        limit_wait(options)
    asked = options.url, options.app
    parser.parse_args(rest, options)
    if (options.url, options.app) != asked:
        parser.error(WHOSE)
    gives_items = request.get("items") is not None
    return Call(request["name"], take_arguments(options), _submit_of(client, options), gives_items)


def _submit_of(client: Client, options: argparse.Namespace) -> Submit:
    from forebay.executor import Submit

    after = options.after and [client.get(one).id for one in options.after]
    return Submit(
        priority=options.priority,
        lane=options.lane,
        retries=options.retries,
        memory=options.memory,
        timeout=options.time_limit,
        delay=options.delay,
        after=after,
        idempotency=options.idempotency,
        submitter=options.submitter,
    )
