"""The picture: steps per second against workers, for one slot and for 16."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt


def plot(rates: dict[int, dict[int, float]], title: str, path: Path) -> Path:
    """Draw a line for each number of slots.

    Args:
        rates: by slots, steps per second by workers.
        title: stands above.
        path: of a PNG, whose folder is made if need be.
    """
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    colours = {1: "0.6"}
    for slots, by_workers in rates.items():
        word = "slot" if slots == 1 else "slots"
        workers = list(by_workers)
        colour = colours.get(slots, "#1b6ca8")
        axes.plot(workers, list(by_workers.values()), "o-", color=colour, label=f"{slots} {word}")
    axes.set_xticks(sorted({each for by_workers in rates.values() for each in by_workers}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("workers")
    axes.set_ylabel("steps per second, all workers together")
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
