"""The picture: records per second of each way, every round a dot."""

from __future__ import annotations

import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt


def plot(rates: dict[str, list[float]], title: str, path: Path) -> Path:
    """Draw a bar for each way; returns `path`, a PNG whose folder is made if need be."""
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    ways = list(rates)
    medians = [statistics.median(rates[way]) for way in ways]
    bars = axes.barh(ways, medians, color=["#1b6ca8", "0.75", "0.75"], height=0.6)
    axes.bar_label(bars, labels=[f" {each:,.0f}" for each in medians])
    for place, way in enumerate(ways):
        axes.plot(rates[way], [place] * len(rates[way]), "o", color="0.2", markersize=3)
    axes.invert_yaxis()
    axes.set_xlabel("records per second; a dot for each round")
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.15)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
