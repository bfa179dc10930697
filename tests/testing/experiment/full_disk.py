"""Fills a small disk: `python -m tests.testing.experiment.full_disk DIRECTORY USER`.

It writes "full" if files can be written to it before and after, and not while it is full; or why it
cannot be mounted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forebay.testing.experiment.disk import FullDisk, SmallDisk
from forebay.testing.experiment.schedule import Planned
from tests.other_user import NOBODY, as_nobody

NOW = Planned(at=0.0, what="", lasts=1.0, choice=0.0, size=0.5)


def full_disk(directory: Path) -> str:
    """Mount it, fill it, free it."""
    small = SmallDisk(directory)
    if small.refusal is not None:
        return small.refusal
    injected = FullDisk(small).inject(NOW)
    assert injected is not None
    file = directory / "empty"
    file.touch()
    with pytest.raises(OSError, match="No space left"):
        file.write_bytes(b"x" * 4096)
    injected.undo()
    file.write_bytes(b"x" * 4096)
    return "full"


if __name__ == "__main__":
    directory, user = Path(sys.argv[1]), int(sys.argv[2])
    told = as_nobody(lambda: full_disk(directory)) if user == NOBODY else full_disk(directory)
    sys.stdout.write(told)
