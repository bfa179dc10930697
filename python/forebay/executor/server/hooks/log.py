"""The log of hooks: a JSON object a line, in two files of at most a megabyte."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any, BinaryIO, Final

from forebay._runtime_directory import open_private

FILE: Final = "hooks.log"
BYTES_MAX: Final = 1_000_000
"""Then it becomes `hooks.log.1`."""
TAIL_BYTES: Final = 262_144
"""Of the file that are read for `forebay hooks log`."""

_log = logging.getLogger(__name__)


class HookLog:
    """Appends lines; one thread writes, any may read. What cannot be written is lost, and told."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._is_broken = False

    def write(self, entry: dict[str, Any]) -> None:
        """Append an entry."""
        line = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
        try:
            with open(self.path, "a+b", opener=open_private) as file:
                begin = _end_of_cut_line(file)
                if file.tell() + len(begin) + len(line) > BYTES_MAX:
                    os.replace(self.path, self.path.with_suffix(".log.1"))
                    with open(self.path, "ab", opener=open_private) as fresh:
                        fresh.write(line)
                else:
                    file.write(begin + line)
        except OSError as error:
            if not self._is_broken:
                _log.warning("%s cannot be written, so lines are lost: %s", self.path, error)
            self._is_broken = True
        else:
            self._is_broken = False

    def tail(self, count: int) -> list[dict[str, Any]]:
        """The last entries, the oldest first; what a full disk has cut is left out."""
        entries: list[dict[str, Any]] = []
        for path in (self.path, self.path.with_suffix(".log.1")):
            if len(entries) < count:
                entries = _entries(path) + entries
        return entries[-count:]


def _end_of_cut_line(file: BinaryIO) -> bytes:
    """What ends the last line, if a crash or a full disk has cut it; the file stays at its end."""
    if file.seek(0, os.SEEK_END) == 0:
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    entries = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the end of one line, or the beginning of another
        if isinstance(entry, dict):
            entries.append(entry)
    return entries
