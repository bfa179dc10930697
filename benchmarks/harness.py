"""Interleaved rounds of contestants, and the rows made from them.

All contestants of a system run once per round, one after the other, so that a disturbance of the
machine meets both sides of a comparison; a ratio compares medians over the rounds of one run.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks import race
from benchmarks.claim import Claim, Contestant
from benchmarks.runner import ContestantError, run_round

Row = dict[str, Any]
ROUNDS_MIN = 3


@dataclass
class Series:
    """What the rounds of one contestant gave."""

    contestant: Contestant
    figures: list[dict[str, float]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    failure: str = ""

    def values(self, figure: str) -> list[float]:
        """One figure, round by round."""
        return [figures[figure] for figures in self.figures if figure in figures]

    def median(self, figure: str) -> float:
        """Median of one figure over the rounds."""
        return statistics.median(self.values(figure))

    def names(self) -> list[str]:
        """Every figure that a round gave."""
        return list(dict.fromkeys(name for figures in self.figures for name in figures))


def contestants(claims: Iterable[Claim]) -> list[Contestant]:
    """Every contestant of the claims once, each peer right after the ours it is compared with."""
    ordered: dict[str, Contestant] = {}
    for claim in claims:
        for contestant in (claim.ours, *claim.peers, *claim.beside):
            ordered.setdefault(contestant.name, contestant)
    return list(ordered.values())


def measure(claims: list[Claim], *, rounds: int, quick: bool) -> dict[str, Series]:
    """Run every contestant once per round, for as long as a claim needs more of it.

    A contestant that fails is left out from then on.
    """
    series = {each.name: Series(each) for each in contestants(claims)}
    last = max([rounds, *(claim.rounds_min for claim in claims)])
    started = time.monotonic()
    for number in range(1, last + 1):
        needed = _needed(claims, series, number=number, rounds=rounds)
        for name, one in series.items():
            if one.failure or name not in needed:
                continue
            _progress(f"[{time.monotonic() - started:5.0f} s] round {number}/{last}  {name} ... ")
            try:
                report = run_round(one.contestant, quick=quick, wanted=needed[name])
            except ContestantError as error:
                one.failure = str(error)
                _progress(f"does not run: {error}\n")
                continue
            one.figures.append(report["figures"])
            one.versions = report["versions"]
            figure, value = next(iter(report["figures"].items()))
            _progress(f"{figure} {value:.4g}\n")
    return series


def _needed(
    claims: Iterable[Claim], series: dict[str, Series], *, number: int, rounds: int
) -> dict[str, list[str]]:
    """Who runs in a round, and which figures claims still compare of it."""
    needed: dict[str, list[str]] = {}
    for claim in claims:
        if number > max(rounds, claim.rounds_min):
            continue
        values = {peer.name: series[peer.name].values(claim.figure) for peer in claim.peers}
        beside = [other.name for other in claim.beside]
        for name in (claim.ours.name, *race.left(claim, values, before=number), *beside):
            figures = needed.setdefault(name, [])
            if claim.figure not in figures:
                figures.append(claim.figure)
    return needed


def _progress(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def row(claim: Claim, series: dict[str, Series], machine: dict[str, Any]) -> Row:
    """One claim's row; `ratio` is None, with the reason, where a side did not run."""
    ours = series[claim.ours.name]
    peers = [series[peer.name] for peer in claim.peers]
    result: Row = {
        "claim": claim.name,
        "ours": None,
        "peer": None,
        "ratio": None,
        "unit": claim.unit,
        "higher_is_better": claim.higher_is_better,
        "figure": claim.figure,
        "optional": claim.optional,
        "note": claim.note,
        "rounds": 0,
        "spread": None,
        "machine": machine,
    }
    if claim.beside:
        others = [series[other.name] for other in claim.beside]
        result["beside"] = [detail(one) | _skipped(one) for one in others]
    failed = next((one for one in (ours, *peers) if one.failure), None)
    if failed is not None:
        return result | {"skipped": f"{failed.contestant.name}: {failed.failure}"}
    values = {peer.contestant.name: peer.values(claim.figure) for peer in peers}
    peer = series[race.leader(claim, values)]
    pairs = list(zip(ours.values(claim.figure), peer.values(claim.figure), strict=False))
    ratios = [claim.ratio(a, b) for a, b in pairs]
    ours_value, peer_value = ours.median(claim.figure), peer.median(claim.figure)
    return result | {
        "ours": ours_value,
        "peer": peer_value,
        "ratio": claim.ratio(ours_value, peer_value),
        "rounds": len(pairs),
        "spread": [min(ratios), max(ratios)],
        "ours_detail": detail(ours),
        "peer_detail": detail(peer),
    }


def _skipped(series: Series) -> dict[str, str]:
    return {"skipped": series.failure} if series.failure else {}


def detail(series: Series) -> dict[str, Any]:
    """Medians of every figure of a contestant, and the versions that gave them."""
    figures = {name: series.median(name) for name in series.names()}
    return {"name": series.contestant.name, "versions": series.versions, **figures}
