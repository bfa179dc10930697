"""Where the danger is: `unsafe` stands in a `sys` module, each time with its reason."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy import rust_source
from tests.tidy.tree import ROOT, complain, files, name, text

UNSAFE = re.compile(r"\bunsafe\b")
NEEDS_REASON = re.compile(r"\bunsafe\s*(\{|impl\b)")


def in_sys(path: Path) -> bool:
    """Whether the file is `sys.rs` or lies in a folder `sys/`."""
    return "sys" in path.relative_to(ROOT).with_suffix("").parts


def has_reason(lines: list[str], index: int) -> bool:
    """Whether `// SAFETY:` stands on the line or above the statement it is part of."""
    if "// SAFETY:" in lines[index]:
        return True
    for line in reversed(lines[:index]):
        stripped = line.strip()
        if "// SAFETY:" in stripped:
            return True
        starts_statement = stripped.endswith((";", "{", "}")) or not stripped
        if starts_statement and not stripped.startswith("//"):
            return False
    return False


def test_unsafe_stands_only_in_sys():
    """A reviewer of memory safety reads the `sys` modules and nothing else."""
    outside = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in files(".rs")
        if not in_sys(path)
        for number, line in enumerate(rust_source.code_only(text(path)).splitlines(), 1)
        if UNSAFE.search(line)
    ]
    complain(outside, next_step="Move it into the crate's sys module, behind a safe function.")


def test_every_unsafe_block_has_a_reason():
    """Each block names the invariant that makes it sound and who upholds it."""
    without = []
    for path in files(".rs"):
        source = text(path).splitlines()
        for index, line in enumerate(rust_source.code_only(text(path)).splitlines()):
            if NEEDS_REASON.search(line) and not has_reason(source, index):
                without.append(f"{name(path)}:{index + 1}: {source[index].strip()}")
    complain(without, next_step="Write `// SAFETY: <invariant, and who upholds it>` above it.")
