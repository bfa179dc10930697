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

    def median(self, figure: str) -> float:
        """Median of one figure over the rounds."""
        return statistics.median(figures[figure] for figures in self.figures)


def contestants(claims: Iterable[Claim]) -> list[Contestant]:
    """Every contestant of the claims once, each peer right after the ours it is compared with."""
    ordered: dict[str, Contestant] = {}
    for claim in claims:
        for contestant in (claim.ours, claim.peer):
            ordered.setdefault(contestant.name, contestant)
    return list(ordered.values())


def measure(claims: list[Claim], *, rounds: int, quick: bool) -> dict[str, Series]:
    """Run every contestant once per round; a contestant that fails is left out from then on."""
    series = {each.name: Series(each) for each in contestants(claims)}
    started = time.monotonic()
    for number in range(1, rounds + 1):
        for name, one in series.items():
            if one.failure:
                continue
            _progress(f"[{time.monotonic() - started:5.0f} s] round {number}/{rounds}  {name} ... ")
            try:
                report = run_round(one.contestant, quick=quick)
            except ContestantError as error:
                one.failure = str(error)
                _progress(f"does not run: {error}\n")
                continue
            one.figures.append(report["figures"])
            one.versions = report["versions"]
            _progress(f"mean {report['figures']['mean']:.4g}\n")
    return series


def _progress(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def row(claim: Claim, series: dict[str, Series], machine: dict[str, Any]) -> Row:
    """One claim's row; `ratio` is None, with the reason, where a side did not run."""
    ours, peer = series[claim.ours.name], series[claim.peer.name]
    result: Row = {
        "claim": claim.name,
        "ours": None,
        "peer": None,
        "ratio": None,
        "unit": claim.unit,
        "higher_is_better": claim.higher_is_better,
        "figure": claim.figure,
        "rounds": min(len(ours.figures), len(peer.figures)),
        "spread": None,
        "machine": machine,
    }
    failed = next((one for one in (ours, peer) if one.failure), None)
    if failed is not None:
        return result | {"skipped": f"{failed.contestant.name}: {failed.failure}"}
    pairs = zip(ours.figures, peer.figures, strict=True)
    ratios = [claim.ratio(a[claim.figure], b[claim.figure]) for a, b in pairs]
    ours_value, peer_value = ours.median(claim.figure), peer.median(claim.figure)
    return result | {
        "ours": ours_value,
        "peer": peer_value,
        "ratio": claim.ratio(ours_value, peer_value),
        "spread": [min(ratios), max(ratios)],
        "ours_detail": detail(ours),
        "peer_detail": detail(peer),
    }


def detail(series: Series) -> dict[str, Any]:
    """Medians of every figure of a contestant, and the versions that gave them."""
    names = series.figures[0]
    figures = {name: series.median(name) for name in names}
    return {"name": series.contestant.name, "versions": series.versions, **figures}
