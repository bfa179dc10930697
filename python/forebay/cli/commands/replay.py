"""`forebay replay`: run a request again in the foreground, with its code and its arguments."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from forebay.cli.output import say_json
from forebay.cli.parser import command, talking
from forebay.cli.session import session, tell
from forebay.errors import ConfigError

EXAMPLES = """\
  forebay replay @last           here, with the arguments that it had
  forebay replay 0a3 --pdb       stops in the debugger where it raises"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "replay",
        run,
        description="Run a request again in this process, with the arguments that it had."
        " Nothing of it is kept.",
        examples=EXAMPLES,
    )
    talking(parser)
    parser.add_argument("id", help="of a request, its beginning, or @last")
    parser.add_argument("--pdb", action="store_true", help="debug where it raises")


def run(options: argparse.Namespace) -> int:
    """Import the application here, and call the function; 1 if it raises."""
    with session(
        options, here="it runs the application's code, which is on that machine"
    ) as client:
        request = client.get(options.id)
        asked = client.ask("arguments", request.id)
        info = client.info()
    attribute = info["target"].partition(":")[2]
    target = f"{info['file']}:{attribute}" if attribute else info["file"]
    definition = _definition(target, asked["name"])
    _compare(options, asked["code"], info["file"])
    return _call(definition, asked["arguments"], options)


def _definition(target: str, name: str) -> Any:
    from forebay.cli.exit_codes import NoSuchThingError
    from forebay.executor._internal import find_app, load, parse_target

    found = parse_target(target)
    names = load(found.kind, found.where, found.directory)
    app = find_app(names or {}, found.attribute, target)
    if name not in app.requests:
        raise NoSuchThingError(
            f"{target} has no request {name!r} any more; it has: {', '.join(app.requests)}"
        )
    return app.requests[name]


def _compare(options: argparse.Namespace, code: str, file: str) -> None:
    """Warn if the code that was imported is not that of the request."""
    from forebay.executor._internal import code_of, sources_of

    now = code_of(sources_of(file))
    if now != code:
        tell(
            options,
            f"forebay: the code has changed since: the request was of {code}, this is {now};"
            " to have the old one, check out the version that it ran",
        )


def _refuse_secrets(definition: Any, given: dict[str, Any]) -> None:
    """Say which arguments are not known here, before the function gets something else."""
    from forebay.executor._internal import is_secret

    secret = [one.name for one in definition.fields if is_secret(one.annotation)]
    missing = [name for name in secret if name in given]
    if missing:
        raise ConfigError(
            f"request {definition.name!r} cannot be replayed: its argument {missing[0]!r} is secret"
            " and opened for its worker alone; call the function yourself"
        )


def _call(definition: Any, blob: Any, options: argparse.Namespace) -> int:
    """Call it as a worker does; an error is shown as in a program."""
    import traceback

    from forebay.cli.ending import say_value
    from forebay.executor._internal import decode, encode

    given = decode(blob) if blob else {}
    _refuse_secrets(definition, given)
    types = {field.name: field.annotation for field in definition.fields}
    arguments = {name: decode(encode(value), types.get(name, Any)) for name, value in given.items()}
    try:
        # Its output is not the result, so it goes to stderr; a debugger uses both streams.
        with contextlib.nullcontext() if options.pdb else contextlib.redirect_stdout(sys.stderr):
            value = _decorated(definition)(**arguments)
            if definition.gives_items:
                value = _items_of(value)
            elif definition.is_async:
                import asyncio

                value = asyncio.run(value)
    except Exception as error:
        own = error.__traceback__ and error.__traceback__.tb_next
        traceback.print_exception(type(error), error, own)
        if options.pdb:
            import pdb

            pdb.post_mortem(own or error.__traceback__)
        return 1
    if options.json:
        say_json({"name": definition.name, "result": value})
    else:
        say_value(value)
    return 0


def _items_of(generator: Any) -> list[Any]:
    """What a generator of either kind yields."""
    if not hasattr(generator, "__aiter__"):
        return list(generator)
    import asyncio

    async def read() -> list[Any]:
        return [value async for value in generator]

    return asyncio.run(read())


def _decorated(definition: Any) -> Any:
    """The function as a program calls it, with the context of a direct call."""
    from forebay.executor._internal import callable_without_context

    return callable_without_context(definition)
