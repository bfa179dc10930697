"""Deaths and delays at random, reproducible from a seed, and a check that nothing is left.

with chaos.nothing_left():
    with forebay.ServicePool() as pool:
        targets = chaos.services(pool) | chaos.templates(pool) | chaos.keeper(pool)
        with chaos.storm(targets=targets, actions=("kill", "stop"), rate=50, seed=7) as storm:
            ...  # what must stand it
print(storm.counts())
"""

from __future__ import annotations

from forebay.testing._inventory import nothing_left
from forebay.testing._plan import Action
from forebay.testing._process import Process
from forebay.testing._storm import Storm, Strike, storm
from forebay.testing._targets import Targets, keeper, processes, services, templates

__all__ = [
    "Action",
    "Process",
    "Storm",
    "Strike",
    "Targets",
    "keeper",
    "nothing_left",
    "processes",
    "services",
    "storm",
    "templates",
]
