"""The search for small code: which flags to try next.

Sans-I/O: `ask` gives the next set of flags, `tell` takes what came of it; whoever drives it
compiles where and how it likes. The same seed and the same answers give the same questions.

Three phases share the budget. Random sets on top of -Os find what this program reacts to; then
random changes of the best set so far climb from there; at the end, parts of the best set are left
out as long as that costs nothing, so that what remains is short enough to read.
Most options do nothing for a given program (of 679 single settings, 54 changed the hash table's
size), which is why a trial changes several at once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from .flags import Option
from .found import Found, describe
from .results import Result

__all__ = ["BASE", "Search", "Setting"]

BASE = "-Os"
_RANDOM_SHARE = 0.25
_PRUNE_SHARE = 0.25
_RANDOM_CHANGES = 12
_CLIMB_CHANGES = (1, 3, 6, 12)
_PARTS = 6

Setting = dict[int, str]  # number of the option to the flag that sets it


class Search:
    """Search the flags of one program for the least bytes.

    Args:
        options: what may be set.
        budget: how many trials, that of -Os included; at least 1.
        seed: what decides every draw.

    Attributes:
        base_bytes: the size at -Os, 0 until it is known.
        best_bytes: the least size of a program that passed its self-check.
        history: the best size after each trial, in the order of the trials.
        outcomes: how many trials ended in which way; "lost" counts those without a result.
        cached: how many trials were answered from a cache.
    """

    def __init__(self, options: Sequence[Option], *, budget: int, seed: str):
        if budget < 1:
            raise ValueError(f"budget is {budget}; at least 1 trial is needed")
        self.budget = budget
        self.base_bytes = 0
        self.best_bytes = 0
        self.history: list[int] = []
        self.outcomes: Counter[str] = Counter()
        self.cached = 0
        self._random = random.Random(seed)
        self._choices = [option.flags() for option in options]
        self._best: Setting = {}
        self._improved: list[tuple[int, int]] = []
        self._asked: Setting | None = None
        self._again: Setting | None = None
        self._left_out: list[list[int]] = []
        self._part_size = 0

    @property
    def best_flags(self) -> list[str]:
        """The flags of the best program so far, -Os first."""
        return self._flags(self._best)

    @property
    def finished(self) -> bool:
        """Whether the budget is used up."""
        return len(self.history) >= self.budget

    def ask(self) -> list[str]:
        """Return the flags of the next trial; `tell` must follow."""
        if self.finished:
            raise ValueError(f"all {self.budget} trials are used")
        self._asked = self._next()
        return self._flags(self._asked)

    def tell(self, result: Result | None) -> None:
        """Take the result of the trial that was asked for; None when it was lost.

        A lost trial is asked for once more: what it was lost with most likely had other reasons
        than its flags. Lost twice, the flags are dropped.
        """
        asked, self._asked = self._asked, None
        if asked is None:
            raise ValueError("tell() without ask()")
        self._again = asked if result is None and asked is not self._again else None
        self.outcomes[result["outcome"] if result else "lost"] += 1
        if result is not None:
            self.cached += result["cached"]
            if result["outcome"] == "good":
                self._take(asked, result["bytes"])
        self.history.append(self.best_bytes)

    def describe(self) -> str:
        """Say in a few words how far it has come."""
        return describe(self.base_bytes, self.best_bytes)

    def found(self, program: str, losses: Sequence[str] = ()) -> Found:
        """What it found so far.

        Args:
            program: whose flags it searched.
            losses: why services were lost.
        """
        return Found(
            program=program,
            base_bytes=self.base_bytes,
            best_bytes=self.best_bytes,
            flags=self.best_flags,
            trials=len(self.history),
            improved=list(self._improved),
            outcomes=dict(self.outcomes),
            cached=self.cached,
            losses=list(losses),
        )

    def _take(self, asked: Setting, size: int) -> None:
        if self.base_bytes == 0 or size < self.best_bytes:
            self._improved.append((len(self.history) + 1, size))
        if self.base_bytes == 0:
            self.base_bytes = self.best_bytes = size
        shorter = len(asked) < len(self._best)
        if size < self.best_bytes or (size == self.best_bytes and shorter):
            self.best_bytes = size
            self._best = asked

    def _next(self) -> Setting:
        if self._again is not None:
            return self._again
        if self.base_bytes == 0:
            return {}
        return self._proposed()

    def _proposed(self) -> Setting:
        """The flags of the next trial, once -Os is known; other searches differ here."""
        share = len(self.history) / self.budget
        if share < _RANDOM_SHARE:
            return self._changed({}, _RANDOM_CHANGES)
        if share >= 1 - _PRUNE_SHARE and (pruned := self._pruned()) is not None:
            return pruned
        return self._changed(self._best, self._random.choice(_CLIMB_CHANGES))

    def _changed(self, setting: Setting, changes: int) -> Setting:
        """Set `changes` options anew; one that is set already may also be left alone again."""
        changed = dict(setting)
        for option in self._random.sample(range(len(self._choices)), self._bounded(changes)):
            changed[option] = self._random.choice(self._choices[option])
        if setting and self._random.random() < 0.3:
            changed.pop(self._random.choice(sorted(setting)))
        return changed

    def _bounded(self, changes: int) -> int:
        return min(changes, len(self._choices))

    def _pruned(self) -> Setting | None:
        """Leave the next part of the best set out; None when no part is left to try.

        Parts get smaller down to single options, as in delta debugging (Zeller and Hildebrandt,
        2002), but start at a sixth: about a fourth of the options matter, so a half never goes.
        """
        while True:
            while self._left_out:
                part = [option for option in self._left_out.pop() if option in self._best]
                if part:
                    return {o: flag for o, flag in self._best.items() if o not in part}
            if self._part_size == 1 or not self._best:
                return None
            wanted = self._part_size // 2 if self._part_size else len(self._best) // _PARTS
            self._part_size = max(1, wanted)
            numbers = list(self._best)
            starts = range(0, len(numbers), self._part_size)
            self._left_out = [numbers[start : start + self._part_size] for start in starts]

    def _flags(self, setting: Setting) -> list[str]:
        return [BASE, *(setting[option] for option in sorted(setting))]
