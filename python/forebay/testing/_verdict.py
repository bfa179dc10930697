"""What a ledger proves: decided from its entries alone, no file, no server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

__all__ = ["Entry", "Verdict"]


class Entry(NamedTuple):
    """One line of a ledger; what the values are depends on `what`.

    Attributes:
        what: "begun", "accepted", "unknown", "refused" or "ended".
        key: of the request.
        first: of "begun" the run, of "accepted" and "ended" the id, else the reason.
        second: of "ended" the status, of "accepted" and "unknown" how often it may begin.
        cause: of "ended".
        is_right: of "ended" whether its result is right; None: unknown.
    """

    what: str
    key: str
    first: str = ""
    second: Any = None
    cause: str = ""
    is_right: bool | None = None


@dataclass
class _Account:
    """What the ledger has of one key."""

    ids: set[str] = field(default_factory=set)
    runs: list[str] = field(default_factory=list)
    ends: list[Entry] = field(default_factory=list)
    max_runs: int | None = None
    is_accepted: bool = False
    is_unknown: bool = False
    refusal: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether an end of it is a success."""
        return any(end.second == "succeeded" for end in self.ends)


@dataclass(frozen=True)
class Verdict:
    """The counts of a ledger, and what is wrong.

    Attributes:
        accepted: keys that the server accepted.
        ended: accepted ones that have ended, by status.
        causes: ends that are no success, by status and cause.
        begun: runs that have begun.
        begun_again: keys that began more than once, and may.
        unknown: keys of which nobody knows whether they were accepted.
        refused: keys that were not taken.
        lost: accepted ones without an end.
        doubled: keys that began more often than they may.
        wrong: what must not be, a sentence each; the lost and the doubled ones are among it.
    """

    accepted: int
    ended: dict[str, int]
    causes: dict[str, int]
    begun: int
    begun_again: int
    unknown: int
    refused: int
    lost: int
    doubled: int
    wrong: list[str]

    @classmethod
    def of(
        cls,
        entries: Iterable[Entry],
        *,
        may_end: Callable[[str, str], bool] | None = None,
        counts_runs: bool = False,
    ) -> Self:
        """Judge these entries; arguments as of `Ledger.verdict`."""
        counts: Counter[str] = Counter()
        ended: Counter[str] = Counter()
        causes: Counter[str] = Counter()
        wrong: list[str] = []
        for key, account in _accounts(entries).items():
            counts["begun"] += len(account.runs)
            counts["accepted"] += account.is_accepted
            counts["unknown"] += account.is_unknown and not account.is_accepted
            counts["refused"] += account.refusal is not None
            _judge_runs(key, account, counts, wrong)
            if account.is_accepted:
                _judge_ends(key, account, counts, wrong)
                if counts_runs and not account.runs and account.succeeded:
                    wrong.append(f"{key}: succeeded, and never begun")
            for end in account.ends[:1]:
                ended[end.second] += 1
                if end.second != "succeeded":
                    causes[f"{end.second}, {end.cause}"] += 1
                    if may_end is not None and not may_end(end.second, end.cause):
                        wrong.append(f"{key}: ended as {end.second}, {end.cause}")
        return cls(
            accepted=counts["accepted"],
            ended=dict(ended),
            causes=dict(causes),
            begun=counts["begun"],
            begun_again=counts["again"],
            unknown=counts["unknown"],
            refused=counts["refused"],
            lost=counts["lost"],
            doubled=counts["doubled"],
            wrong=wrong,
        )

    def raise_if_wrong(self) -> None:
        """Raise AssertionError that names everything that is wrong."""
        if self.wrong:
            raise AssertionError("\n".join(self.wrong))


def _accounts(entries: Iterable[Entry]) -> dict[str, _Account]:
    accounts: dict[str, _Account] = {}
    for entry in entries:
        account = accounts.setdefault(entry.key, _Account())
        if entry.what == "begun":
            account.runs.append(entry.first)
        elif entry.what == "ended":
            account.ends.append(entry)
            account.ids.add(entry.first)
        elif entry.what == "refused":
            account.refusal = entry.first
        else:
            account.max_runs = entry.second
            account.is_accepted |= entry.what == "accepted"
            account.is_unknown |= entry.what == "unknown"
            if entry.what == "accepted":
                account.ids.add(entry.first)
    return accounts


def _judge_runs(key: str, account: _Account, counts: Counter[str], wrong: list[str]) -> None:
    runs, may = len(account.runs), account.max_runs
    if account.refusal is not None and runs and not account.is_accepted:
        wrong.append(f"{key}: refused ({account.refusal}), and begun {_times(runs)}")
    if may is not None and runs > may:
        counts["doubled"] += 1
        named = [run for run in account.runs if run]
        shown = f": {'; '.join(named)}" if named else ""
        wrong.append(f"{key}: begun {_times(runs)} and may begin {_times(may)}{shown}")
    elif runs > 1:
        counts["again"] += 1


def _judge_ends(key: str, account: _Account, counts: Counter[str], wrong: list[str]) -> None:
    if len(account.ids) > 1:
        wrong.append(f"{key}: accepted under several ids: {', '.join(sorted(account.ids))}")
    if not account.ends:
        counts["lost"] += 1
        wrong.append(f"{key}: accepted as {', '.join(account.ids)}, and never ended")
        return
    told = {(end.second, end.cause) for end in account.ends}
    if len(told) > 1:
        shown = "; ".join(sorted(f"{status} {cause}".rstrip() for status, cause in told))
        wrong.append(f"{key}: told several ends: {shown}")
    if any(end.is_right is False for end in account.ends):
        wrong.append(f"{key}: succeeded with a wrong result")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
