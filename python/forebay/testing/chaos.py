"""Random deaths or delays, reproducible from a seed, with a check that nothing is left.

with chaos.nothing_left():
    with forebay.ServicePool() as pool:
        targets = chaos.services(pool) | chaos.templates(pool) | chaos.keeper(pool)
        with chaos.storm(targets=targets, actions=("kill", "stop"), rate=50, seed=7) as storm:
            ...  # what must survive it
print(storm.counts())

`chaos.relay(url, there=chaos.Wire(reset_at=1000))` relays a listener, and fails there.
"""

from __future__ import annotations

from forebay.testing._inventory import nothing_left
from forebay.testing._link import Relay, relay
from forebay.testing._plan import Action
from forebay.testing._process import Process
from forebay.testing._storm import Storm, Strike, storm
from forebay.testing._targets import Targets, keeper, processes, services, templates
from forebay.testing._wire import Wire

__all__ = [
    "Action",
    "Process",
    "Relay",
    "Storm",
    "Strike",
    "Targets",
    "Wire",
    "keeper",
    "nothing_left",
    "processes",
    "relay",
    "services",
    "storm",
    "templates",
]
