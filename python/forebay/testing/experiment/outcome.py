"""What came of an experiment: how often each fault came, and what the ledger says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from forebay.testing._verdict import Verdict

__all__ = ["Outcome", "Row"]


class Row(NamedTuple):
    """One kind of fault.

    Attributes:
        what: the fault.
        injected: how often it was injected.
        survived: how often the application answered again afterwards.
        reason: why it was not injected, where it never was.
    """

    what: str
    injected: int
    survived: int
    reason: str | None


@dataclass(frozen=True)
class Outcome:
    """What came of an experiment.

    Attributes:
        seed: draws the same plan again.
        seconds: for which faults came.
        rows: one for each kind of fault.
        verdict: of the ledger; None: the experiment was interrupted before it could be given.
        wrong: what else must not be, a sentence each.
        interrupted: whether somebody ended it before its time.
    """

    seed: int
    seconds: float
    rows: list[Row]
    verdict: Verdict | None
    wrong: list[str]
    interrupted: bool

    @property
    def everything_wrong(self) -> list[str]:
        """What must not be, of the ledger and beside it."""
        missed = [
            f"{row.what}: nothing succeeded after {row.injected - row.survived} of {row.injected}"
            for row in self.rows
            if row.survived < row.injected and not self.interrupted
        ]
        return [*missed, *self.wrong, *(self.verdict.wrong if self.verdict else ())]

    @property
    def is_good(self) -> bool:
        """Whether every fault was survived, and nothing is wrong."""
        return not self.interrupted and not self.everything_wrong

    def to_json(self) -> dict[str, Any]:
        """It as a map of plain values."""
        verdict = None
        if self.verdict is not None:
            verdict = asdict(self.verdict)
            del verdict["wrong"]  # it is among what is wrong
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "faults": [row._asdict() for row in self.rows],
            "ledger": verdict,
            "wrong": self.everything_wrong,
            "interrupted": self.interrupted,
            "good": self.is_good,
        }
