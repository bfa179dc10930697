"""What became of the tests of a suite, in a file of JSON lines that a later run continues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

OURS = "ours"
THEIRS = "theirs"

STARTED = "started"
PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"
SLOW = "slow"
"""Skipped because it is marked as slow."""
ENDED = "ended"
"""All of a file has been run and judged."""

DIFFERS = "differs"
PASSED_AGAIN = "passed again"
OVER_BOTH = "failed over both"

VERDICTS = (PASSED, SKIPPED, SLOW, PASSED_AGAIN, OVER_BOTH, FAILED, DIFFERS)


@dataclass(frozen=True, slots=True)
class Line:
    """One event: pytest's name of a test or a file, the comms it ran over, and what became of it.

    Reason: of a skip, or the end of what pytest says of a failure.
    """

    test: str
    comms: str
    outcome: str
    seconds: float = 0.0
    reason: str = ""

    @property
    def file(self) -> str:
        return self.test.partition("::")[0]


class Record:
    """Lines of a file, which is made with the first of them; whoever writes only appends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: Line) -> None:
        with self.path.open("a") as file:
            file.write(f"{json.dumps(asdict(line))}\n")

    def size_bytes(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def lines(self) -> list[Line]:
        """All of them, in their order."""
        if not self.path.exists():
            return []
        return [Line(**json.loads(line)) for line in self.path.read_text().splitlines()]

    def close_started(self, reason: str) -> int:
        """Call tests failed that began and did not end, for this reason; how many."""
        begun = {}
        for line in self.lines():
            if line.outcome == STARTED:
                begun[line.test, line.comms] = line
            else:
                begun.pop((line.test, line.comms), None)
        for test, comms in begun:
            self.add(Line(test, comms, FAILED, reason=reason))
        return len(begun)

    def has_ended(self, file: str, *, slow: bool) -> bool:
        """Whether a file is done, with its slow tests if they are asked for."""
        ends = [line for line in self.lines() if (line.test, line.outcome) == (file, ENDED)]
        return bool(ends) and (not slow or any(line.reason == SLOW for line in ends))

    def verdicts(self) -> dict[str, str]:
        """One of `VERDICTS` for each test."""
        tried: dict[str, dict[str, list[str]]] = {}
        for line in self.lines():
            if line.outcome not in (STARTED, ENDED):
                ways = tried.setdefault(line.test, {OURS: [], THEIRS: []})
                ways[line.comms].append(line.outcome)
        return {test: verdict(**ways) for test, ways in tried.items() if ways[OURS]}

    def done(self, *, slow: bool) -> set[str]:
        """The tests that need not run over ours again."""
        return {test for test, said in self.verdicts().items() if not (slow and said == SLOW)}


def verdict(ours: Iterable[str], theirs: Iterable[str]) -> str:
    """What is to be said of a test, from its outcomes over both kinds of comms, in their order."""
    tries = [outcome for outcome in ours if outcome != SLOW] or [SLOW]
    references = list(theirs)
    if tries[0] == SKIPPED and set(references) - {SKIPPED}:
        return DIFFERS
    if tries[0] != FAILED:
        return tries[0]
    if PASSED in tries:
        return PASSED_AGAIN
    if not references:
        return FAILED
    return OVER_BOTH if set(references) == {FAILED} else DIFFERS


def counted(verdicts: dict[str, str]) -> Iterator[tuple[str, dict[str, int]]]:
    """How many tests of each folder got which verdict; at last, of all of them."""
    folders: dict[str, dict[str, int]] = {}
    for test, said in sorted(verdicts.items()):
        folder = str(Path(test.partition("::")[0]).parent)
        for part in (folder, ""):
            counts = folders.setdefault(part, dict.fromkeys(VERDICTS, 0))
            counts[said] += 1
    total = folders.pop("", None)
    yield from sorted(folders.items())
    if total is not None:
        yield "all", total
