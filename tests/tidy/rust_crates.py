"""The modules of each crate and the paths between them, as far as their text tells."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.rust_source import code_only
from tests.tidy.tree import ROOT, files, text

Module = tuple[str, ...]
"""The path of a module below its crate's root, which is ()."""

TESTS_MODULE = re.compile(r"^#\[cfg\((?:all\()?test\b.*\n(?:#\[.*\n)*\s*mod \w+ \{", re.MULTILINE)
PATH = re.compile(r"\b(crate|self|super)((?:::\w+)*)(?:::(\{[^;]*?\}))?")
REEXPORT = re.compile(r"^\s*pub(?:\([^)]*\))? use ([\w:]+?)(?:::(\{[^;]*?\}))?;", re.MULTILINE)


@functools.cache
def crates() -> dict[str, dict[Module, str]]:
    """Each crate's production modules, to their code without comments, literals and tests."""
    found: dict[str, dict[Module, str]] = {}
    for path in files(".rs"):
        if not path.is_relative_to(ROOT / "crates"):
            continue
        crate, folder, *below = path.relative_to(ROOT / "crates").parts
        if folder == "src" and not _holds_tests(Path(*below)):
            found.setdefault(crate, {})[_module(below)] = _production(text(path))
    return found


def edges(modules: dict[Module, str]) -> dict[Module, set[Module]]:
    """Each module, to those whose items it names; its ancestors do not count.

    An item that a module passes on by `pub use` is the item of the module that defines it.
    """
    passed_on = _passed_on(modules)
    found: dict[Module, set[Module]] = {module: set() for module in modules}
    for module, code in modules.items():
        for path in _paths(REEXPORT.sub("", code), module):
            target = _definer(path, modules, passed_on)
            if target != module[: len(target)]:
                found[module].add(target)
    return found


def _holds_tests(path: Path) -> bool:
    return path.stem in ("tests", "test") or path.stem.endswith("_tests") or "tests" in path.parts


def _module(parts: list[str]) -> Module:
    stem = Path(parts[-1]).stem
    return (*parts[:-1], *(() if stem in ("mod", "lib", "main") else (stem,)))


def _production(source: str) -> str:
    code = code_only(source)
    at = TESTS_MODULE.search(code)
    return code[: at.start()] if at else code


def _paths(code: str, module: Module) -> Iterator[Module]:
    for match in PATH.finditer(code):
        start, below, group = match.groups()
        base = {"crate": (), "self": module, "super": module[:-1]}[start]
        names = [name for name in below.split("::") if name]
        while names and names[0] == "super":
            base, names = base[:-1], names[1:]
        yield from ((*base, *names, *rest) for rest in _members(group))


def _members(group: str | None) -> Iterator[Module]:
    """`{a::b, c::{d, e}}` as paths; without a group one empty path."""
    if group is None:
        yield ()
        return
    depth, word = 0, ""
    for character in group[1:-1] + ",":
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character != "," or depth:
            word += character
            continue
        head, _, rest = word.strip().partition("::{")
        names = tuple(n for n in re.split(r"::|\s+as\s+\w+", head) if n and n != "self")
        if rest:
            yield from ((*names, *deeper) for deeper in _members("{" + rest))
        elif names:
            yield names
        word = ""


def _passed_on(modules: dict[Module, str]) -> dict[Module, Module]:
    """Re-exported paths, to what they stand for."""
    found: dict[Module, Module] = {}
    for module, code in modules.items():
        for head, group in REEXPORT.findall(code):
            names = tuple(head.split("::"))
            base = module
            if names[0] in ("crate", "self", "super"):
                base = {"crate": (), "self": module, "super": module[:-1]}[names[0]]
                names = names[1:]
            for rest in _members(group or None):
                path = (*base, *names, *rest)
                if path:
                    found[(*module, path[-1])] = path
    return found


def _definer(path: Module, modules: dict[Module, str], passed_on: dict[Module, Module]) -> Module:
    seen: set[Module] = set()
    while path not in seen:
        seen.add(path)
        for length in range(len(path), 0, -1):
            target = passed_on.get(path[:length])
            if target is not None and path[:length] not in modules:
                path = (*target, *path[length:])
                break
    return next(path[:n] for n in range(len(path), -1, -1) if path[:n] in modules or n == 0)
