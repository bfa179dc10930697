"""Every file is reached from somewhere: nothing lies about that nobody uses."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from tests.tidy import rust_source
from tests.tidy.tree import ROOT, complain, files, module_name, name, text

RUST_MODULE = re.compile(r'(?:#\[path\s*=\s*"([^"]+)"\]\s*)?\bmod\s+(\w+)\s*;')
ROOTS = ("lib.rs", "main.rs", "build.rs")


def imported_names() -> set[str]:
    """Every module that some file imports, or names in a string such as `python -m`."""
    found: set[str] = set()
    for path in files(".py", ".pyi"):
        package = module_name(path).split(".")
        if path.stem != "__init__":
            package = package[:-1]
        for node in ast.walk(ast.parse(text(path))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                origin = ".".join([*base, *([node.module] if node.module else [])])
                found |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value.partition(":")[0])
    return found


def started_by_path() -> set[str]:
    """Modules that some file names by their file, next to itself or from the top: programs."""
    found = set()
    for path in files(".py"):
        for node in ast.walk(ast.parse(text(path))):
            if isinstance(node, ast.Constant) and str(node.value).endswith(".py"):
                candidates = (path.parent / str(node.value), ROOT / str(node.value))
                found |= {module_name(each) for each in candidates if each in files(".py")}
    return found


def entry_points() -> set[str]:
    """Modules that pyproject.toml or the Makefile starts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = list(project.get("scripts", {}).values())
    for group in project.get("entry-points", {}).values():
        targets += group.values()
    makefile = re.findall(r"-m ([\w.]+)", (ROOT / "Makefile").read_text())
    return {target.partition(":")[0] for target in targets} | set(makefile)


def test_every_python_module_is_imported_or_started():
    """Dead code is not read, kept and ported for years."""
    used = imported_names() | entry_points() | started_by_path()
    orphans = [
        name(path)
        for path in files(".py")
        if path.stem not in ("__init__", "__main__", "conftest")
        and not path.stem.startswith("test_")
        and module_name(path) not in used
    ]
    complain(orphans, next_step="Import each where it is needed, or delete it.")


def declared_modules(path: Path) -> set[Path]:
    """The files that the `mod name;` lines of a Rust file stand for."""
    # Attributes hold strings, so only the comments are taken out.
    source = text(path)
    for _, comment in rust_source.comments(source):
        source = source.replace(comment, "")
    here = path.parent if path.name in (*ROOTS, "mod.rs") else path.with_suffix("")
    found = set()
    for explicit, module in RUST_MODULE.findall(source):
        candidates = [path.parent / explicit] if explicit else []
        candidates += [here / f"{module}.rs", here / module / "mod.rs"]
        candidates += [path.parent / f"{module}.rs", path.parent / module / "mod.rs"]
        found |= {candidate.resolve() for candidate in candidates}
    return found


def test_every_rust_file_is_a_module_of_its_crate():
    """A file without its `mod` line is never compiled, and looks as if it were."""
    sources = files(".rs")
    declared = set().union(*(declared_modules(path) for path in sources))
    orphans = [
        name(path)
        for path in sources
        if "src" in path.relative_to(ROOT).parts
        and "bin" not in path.relative_to(ROOT).parts
        and path.name not in ROOTS
        and path not in declared
    ]
    complain(orphans, next_step="Declare each with `mod`, or delete it.")


def test_every_page_is_linked_from_the_index():
    """A page that the index does not name is not found."""
    index = text(ROOT / "docs" / "README.md")
    orphans = [
        name(path)
        for path in files(".md")
        if name(path).startswith("docs/")
        and path != ROOT / "docs" / "README.md"
        and f"({path.relative_to(ROOT / 'docs')})" not in index
    ]
    complain(orphans, next_step="Link each from docs/README.md.")
