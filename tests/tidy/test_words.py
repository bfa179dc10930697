"""The words we do not use, in documents, comments and names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import rust_source
from tests.tidy.tree import complain, files, name, text

# Words that tell readers how they should feel about what they did not understand.
BANNED = re.compile(r"\b(simply|just|easy|easily|obviously|trivially|utils?|misc)\b", re.IGNORECASE)
# Names that say nothing about what is inside.
BANNED_MODULES = frozenset({"util", "utils", "misc", "common", "helper", "helpers", "stuff"})
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
TOOL_NOTE = re.compile(r"# (type: ignore|noqa|mypy:)[^#]*")  # a checker's words, not ours
HERE = Path(__file__)


def markdown_prose(source: str) -> Iterator[tuple[int, str]]:
    """The lines of a document without its code."""
    blanked = FENCE.sub(lambda match: "\n" * match.group().count("\n"), source)
    for number, line in enumerate(blanked.splitlines(), 1):
        yield number, CODE.sub("", line)


def python_prose(source: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], TOOL_NOTE.sub("", token.string)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            first = node.body[0]
            for offset, line in enumerate((ast.get_docstring(node, clean=False) or "").split("\n")):
                yield first.lineno + offset, CODE.sub("", line)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """What a file says to people, by line."""
    if path.suffix == ".md":
        return markdown_prose(text(path))
    return rust_source.comments(text(path)) if path.suffix == ".rs" else python_prose(text(path))


def test_no_banned_word_in_documents_and_comments():
    """Nobody who is stuck is told that it is easy."""
    found = [
        f"{name(path)}:{number}: '{match.group()}' in: {line.strip()[:90]}"
        for path in files(".md", ".py", ".rs")
        if path != HERE
        for number, line in prose(path)
        for match in BANNED.finditer(line)
    ]
    complain(found, next_step="Leave the word out, or say what is meant.")


def test_no_module_has_a_name_that_says_nothing():
    """A module without a subject collects everything."""
    found = [
        name(path)
        for path in files(".py", ".rs")
        if BANNED_MODULES & {part.strip("_") for part in Path(name(path)).with_suffix("").parts}
    ]
    complain(found, next_step="Name each by the one thing that it is responsible for.")
