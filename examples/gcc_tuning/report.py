"""The end of the demo: the table, checked once more, and the files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from .found import Found
from .search import BASE
from .toolchain import Toolchain
from .tune import Tuning

__all__ = ["Row", "rows_of", "save", "table_of"]

_FLAGS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Row:
    """What came out for one program.

    Attributes:
        program: its name.
        base_bytes: at -Os.
        oz_bytes: at -Oz, 0 where this gcc has no -Oz.
        best_bytes: at the best flags.
        flags: those, -Os first.
        check: outcome of compiling and checking the best flags once more, from nothing.
        caught: trials that gcc refused, that crashed or hung, or whose program was wrong.
    """

    program: str
    base_bytes: int
    oz_bytes: int
    best_bytes: int
    flags: list[str]
    check: str
    caught: int

    @property
    def saved_percent(self) -> float:
        """Bytes saved against -Os, in percent."""
        return 100 * (1 - self.best_bytes / self.base_bytes)


def rows_of(tuning: Tuning, source_dir: Path) -> list[Row]:
    """Compile the best flags of each program again, without any cache, and tell what is true."""
    toolchain = Toolchain(source_dir)
    try:
        return [_row(found, toolchain) for found in tuning.found.values()]
    finally:
        toolchain.clean()


def table_of(rows: list[Row]) -> Table:
    """Lay the rows out for reading."""
    table = Table(title="Code, constants and data in bytes", title_justify="left")
    table.add_column("program", no_wrap=True)
    for name in (BASE, "-Oz", "best", "saved"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("flags on top of -Os", overflow="fold")
    table.add_column("self-check", no_wrap=True)
    for row in rows:
        sizes = (str(row.base_bytes), str(row.oz_bytes or "-"), str(row.best_bytes))
        check = "passes" if row.check == "good" else f"FAILS: {row.check}"
        caught = f", {row.caught} caught" if row.caught else ""
        saved = f"{row.saved_percent:.1f} %"
        table.add_row(row.program, *sizes, saved, _short(row.flags[1:]), check + caught)
    return table


def save(rows: list[Row], path: Path) -> Path:
    """Write the rows with all their flags as JSON; return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return path


def _row(found: Found, toolchain: Toolchain) -> Row:
    again = toolchain.compile(found.program, found.flags)
    same = again["outcome"] == "good" and again["bytes"] == found.best_bytes
    return Row(
        program=found.program,
        base_bytes=found.base_bytes,
        oz_bytes=toolchain.compile(found.program, ["-Oz"])["bytes"],
        best_bytes=found.best_bytes,
        flags=found.flags,
        check="good" if same else again["message"] or f"{again['bytes']} bytes now",
        caught=found.caught,
    )


def _short(flags: list[str]) -> str:
    shown = [flag.removeprefix("--param=") for flag in flags[:_FLAGS_SHOWN]]
    more = len(flags) - len(shown)
    return " ".join(shown) + (f" and {more} more" if more > 0 else "")
