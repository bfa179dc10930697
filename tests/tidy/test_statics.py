"""Locks that a fork copies: a thread that the child has not may have held one."""

from __future__ import annotations

import re

from tests.tidy import rust_source
from tests.tidy.tree import complain, files, name, text

LOCKED = re.compile(r"\bstatic\s+(\w+)\s*:\s*((?:std::sync::)?(?:Mutex|RwLock|Condvar)\b)")
ALLOWED = {
    "SHELF",  # it is tried, never waited for
    "PINNING",  # of tests, which do not fork there
}


def test_locks_of_a_process_are_in_per_process():
    """A child waits for ever for a lock that was held at its fork."""
    found = [
        f"{name(path)}: static {lock[1]}: {lock[2]}<...>"
        for path in files(".rs")
        for lock in LOCKED.finditer(rust_source.code_only(text(path)))
        if "src" in path.parts and lock[1] not in ALLOWED
    ]
    complain(found, next_step="Make it a PerProcess<Mutex<...>>, or list it with the reason.")
