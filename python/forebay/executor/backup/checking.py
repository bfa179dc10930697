"""Looking at a backup without starting a server from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forebay import _core
from forebay.errors import BrokenError, ConfigError
from forebay.executor.backup import layout
from forebay.executor.backup.errors import explaining
from forebay.executor.wire.ids import text_of

__all__ = ["Checked", "check_backup"]

FAULTS_MAX: Final = 100
"""That are told of one backup; of more it is said that there are more."""

_ROWS_STEP: Final = 1000


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found.

    Attributes:
        told: what `backup.json` has.
        served: a server has started from it since: it is a state directory, whose files may change.
        faults: what is wrong, a line each; none: a server can start from it with all that it has.
    """

    told: dict[str, Any]
    served: bool
    faults: tuple[str, ...]


def check_backup(directory: Path) -> Checked:
    """Check a backup: the database by SQLite's own means, each file by its name and its length.

    Raises:
        ConfigError: it is no backup, or another user's.
        BrokenError: its disk failed.

    Cost: reads the whole database, and looks at each file.
    """
    with explaining(directory):
        return _check(directory)


def _check(directory: Path) -> Checked:
    told = layout.about(directory)
    if told is None:
        raise ConfigError(
            f"{directory} is no backup: it has no {layout.ABOUT}; name what forebay backup has made"
        )
    inside = directory / told["name"]
    served = (inside / layout.LOCK).exists()
    faults: list[str] = []
    for fault in _faults(directory, inside, told, served=served):
        if len(faults) == FAULTS_MAX:
            faults.append("and more")
            break
        faults.append(fault)
    return Checked(told, served, tuple(faults))


def _faults(directory: Path, inside: Path, told: dict[str, Any], *, served: bool) -> Iterator[str]:
    try:
        copy = _core.StoreBackup(os.fspath(inside))
        unsound = copy.faults()
        yield from (f"{layout.DATABASE}: {fault}" for fault in unsound)
        if unsound:
            return
        if not served:
            yield from _counted(copy, told)
        yield from _named(copy, inside, set(told.get("missing", ())))
    except BrokenError as error:
        yield f"{layout.DATABASE}: {error}"
        return
    if not served:
        yield from _listed(directory, inside, told)
    for key, name in (("key", layout.KEY), ("tokens", "tokens.json")):
        if told.get(key) and not (inside / name).is_file():
            yield f"{name} is not there"


def _counted(copy: _core.StoreBackup, told: dict[str, Any]) -> Iterator[str]:
    version, requests, unfinished, newest = copy.contents()
    found = {
        "version": version,
        "requests": requests,
        "unfinished": unfinished,
        "newest": None if newest is None else text_of(newest),
    }
    for what, value in found.items():
        if told.get(what) != value:
            yield f"{layout.DATABASE}: {what} is {value}, and {layout.ABOUT} says {told.get(what)}"


def _named(copy: _core.StoreBackup, inside: Path, missing: set[str]) -> Iterator[str]:
    """Results that the database names and that are not there; lengths are in the list of files."""
    behind = 0
    while rows := copy.results(behind, _ROWS_STEP):
        behind = rows[-1][0]
        for number, _ in rows:
            name = f"{layout.RESULTS}/{text_of(number)}"
            if not (inside / name).is_file():
                known = ", as in the store that was copied" if name in missing else ""
                yield f"{name} is not there{known}"


def _listed(directory: Path, inside: Path, told: dict[str, Any]) -> Iterator[str]:
    count = 0
    try:
        with open(directory / layout.FILES) as listed:
            for line in listed:
                length, _, name = line.rstrip("\n").partition(" ")
                count += 1
                yield from _differs(inside / name, name, length)
    except (OSError, ValueError) as error:
        yield f"{layout.FILES} cannot be read: {error}"
        return
    if count != told.get("files"):
        yield f"{layout.FILES} has {count} lines, and {layout.ABOUT} says {told.get('files')}"


def _differs(path: Path, name: str, length: str) -> Iterator[str]:
    try:
        found = path.lstat().st_size
    except OSError as error:
        if not name.startswith(f"{layout.RESULTS}/"):  # which is told by its row
            yield f"{name}: {error.strerror}"
        return
    if str(found) != length:
        yield f"{name} has {found} bytes instead of {length}"
