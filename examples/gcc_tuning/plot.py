"""The picture of a run: best bytes against trials."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import MaxNLocator

from .found import Found

__all__ = ["plot"]


def plot(found: dict[str, Found], path: Path) -> Path:
    """Draw the best size of each program, relative to -Os, against the trials made.

    Returns:
        `path`, a PNG file; its folder is made if need be.
    """
    figure, axes = plt.subplots(figsize=(9, 5.2), layout="constrained")
    for program, one in sorted(found.items(), key=lambda item: _share(item[1])):
        steps = [*one.improved, (one.trials, one.best_bytes)]
        shares = [100 * size / one.base_bytes for _, size in steps]
        label = f"{program}: {one.base_bytes} to {one.best_bytes} B"
        trials = [trial for trial, _ in steps]
        axes.step(trials, shares, where="post", label=label, linewidth=1.8)
    axes.axhline(100, color="0.6", linewidth=1, linestyle="--")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trials")
    axes.set_ylabel("best size so far, % of -Os")
    axes.set_title("Code, constants and data against trials; lower is better")
    axes.grid(visible=True, color="0.92")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _share(found: Found) -> float:
    return found.best_bytes / found.base_bytes if found.base_bytes else 1.0
