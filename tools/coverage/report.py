"""One report of both languages, held to the list of files that may be below the limit."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT = 0.8
"""Of the lines of a file."""

Counts = dict[str, dict[int, bool]]
"""By file, as a path below the root: each line that can run, and whether it did."""

RUST = re.compile(r"crates/[^/]+/src/")
# Files of unit tests, which are beside what they test.
RUST_TESTS = re.compile(r"(^|/)(tests/|tests\.rs$|\w+_tests\.rs$)")
TEST_ONLY = re.compile(r"#\[cfg\((all\()?test\b")
TEST_MODULE = re.compile(r"(pub(\(crate\))? )?mod \w+ \{$")


@dataclass(frozen=True)
class Below:
    """A file that may be below the limit, and why."""

    file: str
    reason: str


@dataclass(frozen=True)
class Part:
    """How much of some files runs."""

    name: str
    files: int
    lines: int
    run: int

    @property
    def share(self) -> float:
        """The part of the lines that ran; all of them, where there are none."""
        return self.run / self.lines if self.lines else 1.0

    @property
    def percent(self) -> str:
        """As tables show it: rounded down, so that what is below the limit looks below."""
        return f"{int(self.share * 1000) / 10:.1f} %"


def part(name: str, counts: Iterable[dict[int, bool]]) -> Part:
    """Add files up."""
    every = list(counts)
    return Part(name, len(every), sum(map(len, every)), sum(sum(one.values()) for one in every))


def test_lines(source: str) -> set[int]:
    """The numbers of lines that are in a module of tests, which measures itself."""
    found: set[int] = set()
    lines = source.splitlines()
    inside = False
    for number, line in enumerate(lines, 1):
        before = lines[number - 2] if number > 1 else ""
        inside = inside or bool(TEST_MODULE.match(line) and TEST_ONLY.match(before))
        if inside:
            found.add(number)
        inside = inside and line != "}"
    return found


def read_lcov(text: str, root: Path) -> Counts:
    """What llvm-cov exported of our crates, without their tests."""
    counts: Counts = {}
    lines: dict[int, bool] = {}
    ignored: set[int] = set()
    for row in text.splitlines():
        kind, _, value = row.partition(":")
        if kind == "SF":
            path = Path(value)
            name = str(path.relative_to(root)) if path.is_relative_to(root) else value
            lines = {}
            if RUST.match(name) and not RUST_TESTS.search(name):
                lines = counts.setdefault(name, lines)
                ignored = test_lines(path.read_text(encoding="utf-8"))
        elif kind == "DA":
            number, count = (int(word) for word in value.split(",")[:2])
            if number not in ignored:
                lines[number] = lines.get(number, False) or count > 0
    return {name: lines for name, lines in counts.items() if lines}


def write_lcov(counts: Counts, root: Path) -> str:
    """Both languages in the format that other tools read, such as genhtml."""
    rows = []
    for name, lines in sorted(counts.items()):
        rows.append(f"SF:{root / name}")
        rows += [f"DA:{number},{int(run)}" for number, run in sorted(lines.items())]
        rows += [f"LF:{len(lines)}", f"LH:{sum(lines.values())}", "end_of_record"]
    return "\n".join(rows) + "\n"


def group(name: str) -> str:
    """The crate or the package that a file is in."""
    folders = name.split("/")[:-1]
    return "/".join(folders[:2] if name.startswith("crates/") else folders[:3])


def groups(counts: Counts) -> list[Part]:
    """Each crate and package, each language, then everything."""
    members: dict[str, list[dict[int, bool]]] = defaultdict(list)
    for name, lines in sorted(counts.items()):
        members[group(name)].append(lines)
    for language, suffix in (("Rust", ".rs"), ("Python", ".py")):
        members[language] = [lines for name, lines in counts.items() if name.endswith(suffix)]
    members["all"] = list(counts.values())
    return [part(name, lines) for name, lines in members.items() if lines]


def files(counts: Counts) -> list[Part]:
    """Each file."""
    return [part(name, [lines]) for name, lines in sorted(counts.items())]


def table(parts: list[Part], reasons: dict[str, str] | None = None) -> str:
    """Some parts in Markdown."""
    head = ["| part | files | lines | run | |", "|---|---|---|---|---|"]
    if reasons is not None:
        head = ["| file | lines | run | | reason |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(_row(one, reasons) for one in parts)])


def _row(one: Part, reasons: dict[str, str] | None) -> str:
    figures = f"{one.lines} | {one.run} | {one.percent}"
    if reasons is None:
        return f"| {one.name} | {one.files} | {figures} |"
    return f"| {one.name} | {figures} | {reasons.get(one.name, '')} |"


def allowed(text: str) -> list[Below]:
    """Read the list of files that may be below."""
    rows = tomllib.loads(text).get("below", [])
    return [Below(file, row["reason"]) for row in rows for file in row["files"]]


def problems(counts: Counts, named: list[Below]) -> Iterator[str]:
    """Say which files are below the limit without a reason, and which entries are out of date."""
    parts = {one.name: one for one in files(counts)}
    reasons = {one.file: one.reason for one in named}
    for name, one in parts.items():
        if one.share < LIMIT and not reasons.get(name, "").strip():
            yield (
                f"{name}: the tests run {one.percent} of its {one.lines} lines "
                f"(limit {LIMIT:.0%}); test it, or name it there with the reason why not"
            )
    for name in reasons:
        if name not in parts:
            yield f"{name}: named there, and no such file was measured; take the entry out"
        elif parts[name].share >= LIMIT:
            yield f"{name}: named there, and {parts[name].percent} run; take the entry out"
