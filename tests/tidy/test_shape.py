"""The tree in the large: what makes it hard to live in is counted, and may only fall.

`shape.toml` holds today's number for each rule that is not at its goal yet. A change that lowers
a number lowers it there too.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidy import graph, python_imports, rust_crates, rust_source
from tests.tidy.rust_crates import Module
from tests.tidy.tree import ROOT, files, name, text

FOLDER_FILES_MAX = 25
TEST_FILES_MAX = 40
IMPL_FILES_MAX = 3
OPEN_FIELDS_MAX = 6
BINDING_LINES_MAX = 30

TODAY: dict[str, int] = tomllib.loads(Path(__file__).with_name("shape.toml").read_text())

IMPL = re.compile(r"^impl(?:<[^{]*?>)? (?:(\w+)(?:<[^{]*?>)? for )?(\w+)[^;{]*\{", re.MULTILINE)
STRUCT = re.compile(
    r"^(?:pub(?:\([^)]*\))? )?struct (\w+)[^{;(]*\{(.*?)^\}", re.MULTILINE | re.DOTALL
)
OPEN_FIELD = re.compile(r"^    pub(?:\([^)]*\))? \w+:", re.MULTILINE)
PUBLIC_TYPE = re.compile(
    r"^pub(?:\([^)]*\))? (?:struct|enum|union|trait|type) (?!Result\b)(\w+)", re.MULTILINE
)
TRAIT = re.compile(r"^(?:pub(?:\([^)]*\))? )?trait (\w+)", re.MULTILINE)


def crowded_folders() -> Iterator[str]:
    """Folders with so many files that their names are all that structures them."""
    counts = Counter(path.parent for path in files(".py", ".rs"))
    for folder, count in counts.items():
        is_of_tests = {"tests", "examples"} & set(folder.relative_to(ROOT).parts)
        if count > (TEST_FILES_MAX if is_of_tests else FOLDER_FILES_MAX):
            yield f"{name(folder)}: {count} files"


def python_cycles() -> Iterator[str]:
    """Modules that import each other, in functions too."""
    for cycle in graph.cycles(python_imports.edges()):
        yield " <-> ".join(sorted(cycle))


def private_imports() -> Iterator[str]:
    """Imports of what another package keeps to itself."""
    yield from python_imports.private()


def rust_cycles() -> Iterator[str]:
    """Modules of a crate that name each other, but a child its parent."""
    for crate, modules in rust_crates.crates().items():
        for cycle in graph.cycles(rust_crates.edges(modules)):
            yield f"{crate}: {' <-> '.join(sorted('::'.join(module) for module in cycle))}"


def smeared_types() -> Iterator[str]:
    """Types whose methods, or implementations of traits made for them alone, are in many files."""
    for crate, modules in rust_crates.crates().items():
        traits = _implementations(modules)
        homes: dict[str, set[Module]] = defaultdict(set)
        for module, code in modules.items():
            for kind in re.findall(r"^(?:pub(?:\([^)]*\))? )?(?:struct|enum) (\w+)", code, re.M):
                homes[kind].add(module)
        places: dict[tuple[Module, str], set[Module]] = defaultdict(set)
        for module, code in modules.items():
            for trait, kind in IMPL.findall(code):
                if homes[kind] and (not trait or traits[trait] == 1):
                    above = [home for home in homes[kind] if home == module[: len(home)]]
                    places[max(above, key=len, default=min(homes[kind])), kind].add(module)
        for (home, kind), within in places.items():
            if len(within) > IMPL_FILES_MAX:
                yield f"{crate}::{'::'.join((*home, kind))}: methods in {len(within)} files"


def open_structs() -> Iterator[str]:
    """Structs with methods that change them, and with many fields that others may change too."""
    for crate, modules in rust_crates.crates().items():
        for module, code in modules.items():
            for kind, body in STRUCT.findall(code):
                count = len(OPEN_FIELD.findall(body))
                if count > OPEN_FIELDS_MAX and _changes_itself(kind, code):
                    yield f"{crate}::{'::'.join((*module, kind))}: {count} open fields"


def names_public_twice() -> Iterator[str]:
    """Types, traits and aliases (but `Result`) that are public in several modules of a crate."""
    for crate, modules in rust_crates.crates().items():
        if crate != "python":
            kinds = Counter(kind for code in modules.values() for kind in PUBLIC_TYPE.findall(code))
            yield from (f"{crate}::{kind}" for kind, count in kinds.items() if count > 1)


def long_binding_functions() -> Iterator[str]:
    """Functions of the binding that have swallowed logic."""
    for path in files(".rs"):
        if path.is_relative_to(ROOT / "crates/python/src"):
            for function in rust_source.functions(text(path)):
                if function.length > BINDING_LINES_MAX:
                    yield f"{name(path)}:{function.line}: {function.name}, {function.length} lines"


def map_err_in_the_binding() -> Iterator[str]:
    """Errors that are converted by hand where `?` could do it."""
    for module, code in rust_crates.crates()["python"].items():
        yield from [f"{'::'.join(module)}: map_err"] * code.count(".map_err(")


RULES: dict[str, Callable[[], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        crowded_folders,
        python_cycles,
        private_imports,
        rust_cycles,
        smeared_types,
        open_structs,
        names_public_twice,
        long_binding_functions,
        map_err_in_the_binding,
    )
}


@pytest.mark.parametrize("rule", RULES)
def test_the_number_only_falls(rule):
    """Shape that was won is not lost again, one small addition at a time."""
    found = sorted(RULES[rule]())
    today = TODAY[rule]
    listing = "\n  ".join(found)
    assert len(found) <= today, f"{len(found)} where {today} are allowed:\n  {listing}"
    assert len(found) == today, f"{rule} is {len(found)} now: write that into shape.toml"


def test_every_rule_has_a_number():
    """A rule that is misspelt in the table would hold nothing."""
    assert TODAY.keys() == RULES.keys()


def _implementations(modules: dict[Module, str]) -> Counter[str]:
    """The crate's own traits, to how many types implement each."""
    own = {trait for code in modules.values() for trait in TRAIT.findall(code)}
    found = Counter(trait for code in modules.values() for trait, _ in IMPL.findall(code))
    return Counter({trait: found[trait] for trait in own})


def _changes_itself(kind: str, code: str) -> bool:
    pattern = rf"^impl(?:<[^{{]*?>)? {kind}\b[^{{]*\{{(.*?)^\}}"
    return any("&mut self" in body for body in re.findall(pattern, code, re.M | re.S))
