"""Enough of Rust's syntax to count a function's lines and to find a keyword that is code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# Comments and literals: everything in which a brace or a keyword means nothing.
OPAQUE = re.compile(
    r"""
      //[^\n]*
    | /\*.*?\*/
    | b?r(?P<hashes>\#*)".*?"(?P=hashes)
    | b?"(?:\\.|[^"\\])*"
    | b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])'
    """,
    re.VERBOSE | re.DOTALL,
)
FUNCTION = re.compile(r"\bfn\s+(\w+)")


class Function(NamedTuple):
    """One function with a body."""

    name: str
    line: int
    length: int


def code_only(source: str) -> str:
    """The source with comments and literals blanked; every line keeps its number."""
    return OPAQUE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of each comment."""
    for match in OPAQUE.finditer(source):
        if match.group().startswith(("//", "/*")):
            yield source.count("\n", 0, match.start()) + 1, match.group()


def functions(source: str) -> Iterator[Function]:
    """Every function that has a body, nested ones too."""
    code = code_only(source)
    for match in FUNCTION.finditer(code):
        opening = _body(code, match.end())
        if opening is None:
            continue
        line = code.count("\n", 0, match.start()) + 1
        length = code.count("\n", match.start(), _closing(code, opening)) + 1
        yield Function(match.group(1), line, length)


def _body(code: str, start: int) -> int | None:
    """Where the body opens, or None for a declaration that ends in a semicolon."""
    depth = 0
    for index in range(start, len(code)):
        character = code[index]
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif depth == 0 and character in "{;":
            return index if character == "{" else None
    return None


def _closing(code: str, opening: int) -> int:
    depth = 0
    for index in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[index], 0)
        if depth == 0:
            return index
    return len(code)
