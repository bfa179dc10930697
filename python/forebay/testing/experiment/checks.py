"""What must be true after an experiment, beside its ledger: of the store, of records, of files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from forebay.errors import Error, InternalError
from forebay.executor import Client
from forebay.testing import chaos
from forebay.testing._ledger import Ledger
from forebay.testing.experiment.ground import Ground

__all__ = [
    "differs_from_store",
    "explained",
    "left_behind",
    "lost_records",
    "never_taken",
    "not_ours",
]

GONE_S: Final = 10.0

PROBES: Final = (b"", b"blat")
"""What `tempfile` writes to see whether a directory takes files; a SIGKILL then leaves it there."""

EXPLAINED: Final = frozenset(
    {"signal", "server", "unknown", "memory", "lost", "time"}
    | {"BlockError", "BrokenError", "BusyError", "ClosedError", "DeadlineError", "DiedError"}
    | {"LimitError", "StaleError", "MemoryError", "OSError", "TimeoutError", "FileNotFoundError"}
    | {"BlockingIOError", "BrokenPipeError", "ConnectionError", "ConnectionRefusedError"}
    | {"ConnectionResetError", "ConnectionAbortedError"}
)
"""Causes of ends that faults explain. A wrong value, a mistake of ours and a leaving process are
not among them."""


def explained(status: str, cause: str) -> bool:
    """Whether faults explain an end of a request of the experiment's own application."""
    return status in ("failed", "dead") and cause.rpartition(".")[2] in EXPLAINED


def not_ours(status: str, cause: str) -> bool:
    """Whether an end is no mistake of Forebay, whatever the application is."""
    return cause.rpartition(".")[2] != InternalError.__name__


def never_taken(ledger: Ledger) -> list[str]:
    """Names of requests of which the server took none: a wrong argument is refused each time."""
    taken, refusals = set(), dict[str, str]()
    for entry in ledger.entries():
        name = entry.key.rpartition("-")[0]
        if entry.what in ("accepted", "unknown"):
            taken.add(name)
        elif entry.what == "refused":
            refusals.setdefault(name, entry.first)
    return [
        f"{name}: no submission was taken: {refusal}"
        for name, refusal in refusals.items()
        if name not in taken
    ]


def differs_from_store(ledger: Ledger, socket: Path) -> list[str]:
    """What clients were told, and a server that was started since does not have so."""
    told = {
        entry.first: (entry.key, entry.second)
        for entry in ledger.entries()
        if entry.what == "ended"
    }
    wrong = []
    with Client(f"unix://{socket}", start=False) as client:
        for id_, (key, status) in told.items():
            try:
                stored = client.ask("status", id_)["status"]
            except Error as error:
                stored = str(error)
            if stored != status:
                wrong.append(f"{key}: told {status}, and the next server has {stored}")
    return wrong


def lost_records(ledger: Ledger, directory: Path) -> list[str]:
    """What is wrong with the file of records: each append that succeeded is there, once."""
    from forebay.testing.experiment.app import recorded

    try:
        found = recorded(directory)
    except Error as error:
        return [f"the file of records: {error}"]
    there = set(found)
    wrong = [] if len(there) == len(found) else ["the file of records has a number twice"]
    return wrong + [
        f"{entry.key}: succeeded, and its record is gone"
        for entry in ledger.entries()
        if entry.what == "ended"
        and entry.second == "succeeded"
        and entry.key.startswith("record-")
        and int(entry.key.removeprefix("record-")) not in there
    ]


@contextlib.contextmanager
def left_behind(ground: Ground, wrong: list[str]) -> Iterator[None]:
    """Add to `wrong` what is left of the block: processes, descriptors, files, shared memory.

    The temporary directory of the block is the experiment's, so that files of other programs that
    run meanwhile are not counted.
    """
    before = tempfile.tempdir
    tempfile.tempdir = str(ground.scratch)
    try:
        with chaos.nothing_left(folders=[ground.scratch, ground.sockets], timeout=GONE_S):
            try:
                yield
            finally:
                _remove_probes(ground.scratch)
    except AssertionError as error:
        wrong.append(str(error))
    finally:
        tempfile.tempdir = before


def _remove_probes(scratch: Path) -> None:
    for path in scratch.iterdir():
        if path.is_file() and path.read_bytes() in PROBES:
            path.unlink()
