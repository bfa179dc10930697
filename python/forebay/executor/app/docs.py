"""What a docstring says about a request and each of its parameters."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?|Attributes):\s*"
)
_ARGUMENTS = frozenset({"Args", "Arguments", "Parameters"})
_KEPT = frozenset({"Example", "Examples", "Note", "Notes"})
_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class Docs(NamedTuple):
    """The text of a docstring, and that of its parameters by name."""

    text: str
    parameters: dict[str, str]


def docs_of(function: object) -> Docs:
    """Read the docstring of a function, in Google's form."""
    text: list[str] = []
    arguments: list[str] = []
    into: list[str] | None = text
    for line in (inspect.getdoc(function) or "").splitlines():
        section = _SECTION.fullmatch(line)
        if section is None:
            if into is not None:
                into.append(line)
        elif section[1] in _ARGUMENTS:
            into = arguments
        elif section[1] in _KEPT:
            into = text
            text.append(line)
        else:
            into = None
    return Docs("\n".join(text).strip(), _items(arguments))


def _items(lines: list[str]) -> dict[str, str]:
    """The entries of an Args section; a line that is indented further continues the last entry."""
    found: dict[str, str] = {}
    current, indent = "", None
    for line in lines:
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if not stripped:
            continue
        indent = depth if indent is None else indent
        item = _ITEM.fullmatch(stripped) if depth <= indent else None
        if item is not None:
            current = item[1]
            found[current] = item[2]
        elif current:
            found[current] = f"{found[current]} {stripped}".strip()
    return found
