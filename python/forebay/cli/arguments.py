"""The options of one request, made from its manifest."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, Final

from forebay.cli.parser import Parser

__all__ = ["has_parameter", "request_parser", "take_arguments"]

_PREFIX: Final = "argument:"
"""The prefix of the names of arguments in the namespace, where options of the command are too."""


def request_parser(
    command: str, request: dict[str, Any], definitions: dict[str, Any], add: Callable[[Any], None]
) -> Parser:
    """A parser of the arguments of one request, and of the command's own options behind them.

    If a parameter has the name of an option of the command, the word means the parameter. Give the
    option before the name of the request then.

    Args:
        command: "run" or "submit".
        request: its part of the manifest.
        definitions: of the manifest.
        add: adds the command's own options.
    """
    name = request["name"]
    required = [f"--{_dashed(one['name'])} ..." for one in _parameters(request) if one["required"]]
    example = " ".join([f"  forebay {command} {name}", *required])
    parser = Parser(
        prog=f"forebay {command} {name}",
        description=(request.get("doc") or "").strip(),
        examples=example,
    )
    group = parser.add_argument_group("arguments")
    for parameter in _parameters(request):
        _add(group, parameter, definitions)
    add(_Again(parser))
    groups = parser._action_groups
    groups.insert(0, groups.pop())  # the request's own arguments come first
    return parser


def has_parameter(request: dict[str, Any], name: str) -> bool:
    """Whether a request of the manifest has a parameter of that name."""
    return any(one["name"] == name for one in _parameters(request))


def take_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments that were given, by the names of their parameters."""
    return {
        key.removeprefix(_PREFIX): value
        for key, value in vars(options).items()
        if key.startswith(_PREFIX)
    }


class _Again:
    """Adds options a second time: those that are free, without their defaults."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def add_argument(self, *names: str, **settings: Any) -> None:
        taken = self._parser._option_string_actions
        free = [name for name in names if name.startswith("-") and name not in taken]
        if free:
            settings["default"] = argparse.SUPPRESS
            self._parser.add_argument(*free, **settings)


def _parameters(request: dict[str, Any]) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = request["parameters"]
    return parameters


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _add(group: Any, parameter: dict[str, Any], definitions: dict[str, Any]) -> None:
    name = parameter["name"]
    names = dict.fromkeys((f"--{_dashed(name)}", f"--{name}"))
    Parser.options |= set(names)
    group.add_argument(
        *names,
        dest=f"{_PREFIX}{name}",
        default=argparse.SUPPRESS,
        required=parameter["required"],
        help=_help(parameter),
        **_reading_of(parameter, definitions),
    )


def _help(parameter: dict[str, Any]) -> str:
    default = f"({json.dumps(parameter['default'])})" if "default" in parameter else ""
    needed = "(required)" if parameter["required"] else ""
    parts = (parameter.get("doc"), default, needed)
    return " ".join(part for part in parts if part).replace("%", "%%")


def _reading_of(parameter: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """How argparse reads a parameter; a secret one from a file, since others see this process's."""
    reading = _reading(parameter.get("schema") or {}, definitions)
    if parameter.get("secret"):
        return {"type": _secret(reading.get("type", _json)), "metavar": "@FILE"}
    return reading


def _secret(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Reads a value from a file, or from standard input; without its last line break."""

    def reading(text: str) -> Any:
        if text == "-":
            return read(sys.stdin.readline().removesuffix("\n"))
        if not text.startswith("@"):
            raise argparse.ArgumentTypeError(
                "it is secret, and every user sees the arguments of a process; give @FILE, or - for"
                " standard input"
            )
        try:
            with open(text[1:], encoding="utf-8") as file:
                return read(file.read().removesuffix("\n"))
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{text[1:]}: {error.strerror}") from None

    return reading


def _reading(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """How argparse reads a value of this schema."""
    schema = _resolved(schema, definitions)
    kind = schema.get("type")
    if kind == "boolean":
        return {"action": argparse.BooleanOptionalAction}
    if "enum" in schema and all(isinstance(one, str) for one in schema["enum"]):
        return {"choices": schema["enum"]}
    if kind == "array" and (schema.get("items") or {}).get("type") in _SCALARS:
        read, called = _SCALARS[schema["items"]["type"]]
        return {"type": read, "metavar": called, "nargs": "*"}
    if schema.get("x-forebay") == "bytes":
        return {"type": str.encode, "metavar": "TEXT"}
    if kind in _SCALARS:
        read, called = _SCALARS[kind]
        return {"type": read, "metavar": called}
    return {"type": _json if kind else _json_or_text, "metavar": "JSON"}


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference names, and of "this or null" this."""
    while True:
        if "$ref" in schema:
            schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
            continue
        choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        if len(choices) != 1:
            return schema
        schema = choices[0]


def _json(text: str) -> Any:
    """Value in JSON."""
    return json.loads(text)


def _json_or_text(text: str) -> Any:
    """The value of JSON text, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


_json.__name__ = "JSON"  # as argparse calls it in its messages

_SCALARS: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "integer": (int, "INT"),
    "number": (float, "NUMBER"),
    "string": (str, "TEXT"),
}
