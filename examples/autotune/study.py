"""What several seeds found, compared."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.gcc_tuning.found import Found

from .app import Learned
from .policy import WAYS, Way

__all__ = ["Study"]


@dataclass(frozen=True)
class Study:
    """The seeds of a study, with the same programs and as many trials each.

    Attributes:
        learned: by seed.
        minutes: of the whole run.
    """

    learned: list[Learned]
    minutes: float

    @property
    def programs(self) -> list[str]:
        """Those that were left out of training."""
        return [found.program for found in self.learned[0].found["learned"]]

    def curves(self, way: Way) -> npt.NDArray[np.float64]:
        """Percent saved over -Os after each compilation, mean of programs; a row for each seed."""
        return np.array(
            [np.mean([_saved(one) for one in each.found[way]], axis=0) for each in self.learned]
        )

    def verdict(self) -> str:
        """Whether the learned policy saves more than the others, and in how many seeds."""
        last = {way: self.curves(way)[:, -1] for way in WAYS}
        beaten: list[str] = []
        others: list[str] = []
        for way in [way for way in WAYS if way != "learned"]:
            seeds = int(np.sum(last["learned"] > last[way]))
            told = f"{WAYS[way]} (in {seeds} of {len(self.learned)} seeds)"
            (beaten if last["learned"].mean() > last[way].mean() else others).append(told)
        parts = [f"beats {_listed(beaten)}"] if beaten else []
        parts += [f"does not beat {_listed(others)}"] if others else []
        return f"The learned policy {' but '.join(parts)}"

    def table(self) -> str:
        """Percent saved over -Os by each way, for reading."""
        lines = [f"{'saved over -Os':<18}{'mean':>8}{'least':>8}{'greatest':>10} seed"]
        for way, name in WAYS.items():
            last = self.curves(way)[:, -1]
            low, mean, high = (f"{each:.2f} %" for each in (last.min(), last.mean(), last.max()))
            lines.append(f"{name:<18}{mean:>8}{low:>8}{high:>10}")
        return "\n".join(lines)

    def save(self, path: Path) -> Path:
        """Write what was found as JSON, one line for each seed, way and program."""
        compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
        rows = [
            {"seed": each.seed, "way": way, **_shortened(one)}
            for each in self.learned
            for way, found in each.found.items()
            for one in found
        ]
        facts: dict[str, Any] = {
            "gcc": compiler.stdout.splitlines()[0],
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "minutes": round(self.minutes, 1),
            "verdict": self.verdict(),
            "saved_percent": {way: self.curves(way)[:, -1].round(3).tolist() for way in WAYS},
            "trials_of_training": [each.trials for each in self.learned],
        }
        body = ",\n".join(f"  {json.dumps(row)}" for row in rows)
        head = json.dumps(facts, indent=1).removesuffix("\n}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{head},\n "found": [\n{body}\n ]\n}}\n')
        return path


def _listed(names: list[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _saved(found: Found) -> npt.NDArray[np.float64]:
    """Percent saved over -Os after each trial; nothing where not even -Os could be built."""
    saved = np.zeros(found.trials)
    for trial, size in found.improved:
        saved[trial - 1 :] = 100 * (1 - size / found.base_bytes)
    return saved


def _shortened(found: Found) -> dict[str, Any]:
    return {
        "program": found.program,
        "base_bytes": found.base_bytes,
        "best_bytes": found.best_bytes,
        "flags": " ".join(found.flags),
        "improved": found.improved,
        "outcomes": found.outcomes,
    }
