"""What the command line needs of the experiments, and users do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.testing.experiment.outcome import Outcome
    from forebay.testing.experiment.run import Design, Experiment
    from forebay.testing.experiment.schedule import FAULTS, chosen_faults

__all__ = ["FAULTS", "Design", "Experiment", "Outcome", "chosen_faults"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "experiment.outcome": ("Outcome",),
        "experiment.run": ("Design", "Experiment"),
        "experiment.schedule": ("FAULTS", "chosen_faults"),
    },
)
