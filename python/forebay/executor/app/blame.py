"""Showing a failed import to an application's author, without frames of Forebay."""

from __future__ import annotations

import os
import re
from typing import Final

from forebay._package import PACKAGE

__all__ = ["without_own_lines"]

_OWN: Final = os.path.join(PACKAGE, "")

_FRAME: Final = re.compile(r'  File "([^"]+)", line \d+')
_HEAD_ALONE: Final = re.compile(r"^Traceback \(most recent call last\):\n(?=\S)", re.MULTILINE)


def without_own_lines(text: str) -> str:
    """A text with tracebacks in it, without the frames of this package."""
    kept: list[str] = []
    is_own = False
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if frame is not None:
            is_own = frame[1].startswith(_OWN)
        elif not line.startswith("    "):  # neither a line of source nor the marks below it
            is_own = False
        if not is_own:
            kept.append(line)
    return _HEAD_ALONE.sub("", "\n".join(kept))
