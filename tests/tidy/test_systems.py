"""One word per system: crate, subpackage, binding, tests, benchmarks and docs agree."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tidy.tree import CRATES_BESIDE_SYSTEMS, ROOT, SYSTEMS, complain, files, name, text

TESTS_BESIDE_SYSTEMS = frozenset({"client", "docs", "notebooks", "tidy", "wheel"})
PAGES_BESIDE_SYSTEMS = frozenset({"notebooks"})
BINDING_BESIDE_SYSTEMS = frozenset({"lib", "error", "fields", "sys"})


def folders_with_files(parent: str) -> set[str]:
    """Names of the folders right below `parent` that hold sources."""
    below = [
        Path(name(path)).parts for path in files(".py", ".rs") if name(path).startswith(parent)
    ]
    depth = len(Path(parent).parts)
    return {parts[depth] for parts in below if len(parts) > depth + 1}


def has_code(package: Path) -> bool:
    """Whether a package holds more than the docstring of a reserved place."""
    sources = [path for path in files(".py") if path.is_relative_to(package)]
    return any(len(ast.parse(text(path)).body) > 1 for path in sources)


def test_every_folder_carries_the_word_of_a_system():
    """A newcomer reads the same words in every top folder."""
    examples = folders_with_files("examples/")
    pages = {
        Path(name(path)).relative_to("docs/concepts").with_suffix("").parts[0]
        for path in files(".md")
        if name(path).startswith("docs/concepts/")
    }
    binding = {
        Path(name(path)).relative_to("crates/python/src").with_suffix("").parts[0]
        for path in files(".rs")
        if name(path).startswith("crates/python/src/")
    }
    places = {
        "crates/": folders_with_files("crates/") - CRATES_BESIDE_SYSTEMS,
        "python/forebay/": folders_with_files("python/forebay/"),
        "tests/": folders_with_files("tests/") - TESTS_BESIDE_SYSTEMS - examples,
        "docs/concepts/": pages - PAGES_BESIDE_SYSTEMS,
        "crates/python/src/": binding - BINDING_BESIDE_SYSTEMS,
    }
    strange = [f"{place}{word}" for place, words in places.items() for word in words - SYSTEMS]
    complain(strange, next_step=f"Use the word of the system: {', '.join(sorted(SYSTEMS))}.")


def test_every_crate_has_its_subpackage():
    """What the core can do is found under the same name in Python."""
    crates = folders_with_files("crates/") - CRATES_BESIDE_SYSTEMS
    alone = [f"crates/{word}" for word in crates - folders_with_files("python/forebay/")]
    complain(alone, next_step="Add python/forebay/<word>/__init__.py with its docstring.")


def test_every_subpackage_with_code_has_tests():
    """A system is tested where its name says."""
    untested = [
        f"python/forebay/{word} has code, tests/{word}/ is not there"
        for word in folders_with_files("python/forebay/") - folders_with_files("tests/")
        if has_code(ROOT / "python" / "forebay" / word)
    ]
    complain(untested, next_step="Add tests/<word>/test_<subject>.py.")
