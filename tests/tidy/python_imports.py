"""Which module of the package imports which, at run time: imports in functions count."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tidy.tree import ROOT, files, module_name, text

SOURCES = ROOT / "python"
PUBLIC_MODULES = frozenset({"forebay.transport.native", "forebay.testing.chaos"})
"""Deeper modules that users import by their path."""


class Import(NamedTuple):
    """`from origin import name`, or `import origin`."""

    module: str
    origin: str
    name: str | None


@functools.cache
def modules() -> dict[str, Path]:
    """Every module of the package, to its file."""
    return {module_name(path): path for path in files(".py") if path.is_relative_to(SOURCES)}


def imports(*, for_types: bool) -> Iterator[Import]:
    """Each import of one module of the package by another; those for type checkers if asked."""
    for module, path in modules().items():
        tree = ast.parse(text(path))
        unseen = set() if for_types else set(_for_type_checkers(tree))
        for node in ast.walk(tree):
            if node in unseen:
                continue
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("forebay"):
                for alias in node.names:
                    yield Import(module, str(node.module), alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.startswith("forebay"):
                        yield Import(module, alias.name, None)


def edges() -> dict[str, set[str]]:
    """Each module, to those that it imports; a package that contains it does not count.

    A name that a package loads on first use is that of the module that defines it.
    """
    known, homes = modules(), _homes()
    found: dict[str, set[str]] = {module: set() for module in known}
    for module, origin, imported in imports(for_types=False):
        deeper = f"{origin}.{imported}"
        target = deeper if deeper in known else origin
        while (target, imported) in homes:
            target = homes[target, imported]
        if target in known and target != module and not module.startswith(f"{target}."):
            found[module].add(target)
    return found


def private() -> list[str]:
    """Imports of what another package keeps to itself; its module `_internal` is for others."""
    found = []
    known = modules()
    for module, origin, imported in imports(for_types=True):
        own, other = (f"{name}..".split(".")[1] for name in (module, origin))
        if not other or other.startswith("_") or own == other or f"forebay.{other}" not in known:
            continue
        deeper = f"{origin}.{imported}"
        named = deeper if deeper in known else origin
        is_deep = named.count(".") > 1 and named not in PUBLIC_MODULES
        is_private = imported is not None and imported.startswith("_") and imported != "_internal"
        if (is_deep and not named.endswith("._internal")) or is_private:
            found.append(f"{module} imports {origin}.{imported}")
    return found


def _homes() -> dict[tuple[str, str | None], str]:
    """Package and name, to the module that `lazy` loads the name from."""
    found: dict[tuple[str, str | None], str] = {}
    for package, path in modules().items():
        for node in ast.walk(ast.parse(text(path))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy":
                for home, names in ast.literal_eval(node.args[1]).items():
                    module = f"{package.removesuffix('._internal')}.{home}"
                    found |= {(package, name): module for name in names}
    return found


def _for_type_checkers(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from ast.walk(node)
