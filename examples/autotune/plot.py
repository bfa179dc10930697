"""The picture: bytes saved against compilations, for each way with its spread over seeds."""

from __future__ import annotations

import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from .policy import WAYS, Way
from .study import Study

__all__ = ["plot"]

TITLE_LETTERS = 110
COLOURS: dict[Way, str] = {
    "learned": "#1b6ca8",
    "untaught": "#3a9d6e",
    "demo": "#c8651b",
    "random": "0.55",
}


def plot(study: Study, path: Path) -> Path:
    """Draw the mean over seeds as a line, from the least to the greatest seed as a band.

    Returns:
        `path`, a PNG file; its folder is made if need be.
    """
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for way, name in WAYS.items():
        curves = study.curves(way)
        trials = np.arange(1, curves.shape[1] + 1)
        mean = curves.mean(axis=0)
        axes.fill_between(
            trials, curves.min(axis=0), curves.max(axis=0), color=COLOURS[way], alpha=0.18, lw=0
        )
        label = f"{name}: {mean[-1]:.1f} %"
        axes.plot(trials, mean, color=COLOURS[way], linewidth=2, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("compilations of a program that was left out of training")
    axes.set_ylabel("saved over -Os, %, mean over programs")
    seeds = len(study.learned)
    spread = f"; bands: {seeds} seeds" if seeds > 1 else "; one seed"
    verdict = textwrap.fill(study.verdict(), TITLE_LETTERS)
    axes.set_title(f"{verdict}\n{len(study.programs)} programs{spread}", fontsize=10)
    axes.grid(visible=True, color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
