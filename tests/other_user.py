"""A real other user: a child of a test that has put root's rights off."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


def let_others_reach(directory: Path) -> None:
    """Let other users pass through a directory of a test and those above it, which stay as open."""
    shared = Path(tempfile.gettempdir())
    for one in (directory, *directory.parents):
        if shared in one.parents:
            one.chmod(one.stat().st_mode | 0o011)


def as_nobody(work: Callable[[], object]) -> str:
    """Run something in a forked child that is user 65534; what it returned or raised, as text.

    A clone below root's home keeps that user from importing anything, so whatever the work imports
    has to be imported before.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            text = str(work())
        except BaseException:
            text = traceback.format_exc()
        with os.fdopen(write, "w") as told:
            told.write(text)
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        text = told.read()
    os.waitpid(child, 0)
    return text
