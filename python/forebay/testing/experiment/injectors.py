"""Every injector of an experiment, by the name of its fault."""

from __future__ import annotations

from typing import Final

from forebay.testing.experiment.attached import Attached
from forebay.testing.experiment.clock import ClockJump
from forebay.testing.experiment.disk import FullDisk
from forebay.testing.experiment.ground import Ground
from forebay.testing.experiment.injector import Injected, Injector
from forebay.testing.experiment.limits import MemoryLimit, NoDescriptors
from forebay.testing.experiment.processes import Kill, Stop
from forebay.testing.experiment.proxy import FaultyProxy, Proxies
from forebay.testing.experiment.schedule import Planned
from forebay.testing.experiment.served import Served
from forebay.testing.experiment.struck import KINDS

__all__ = ["injectors_of"]

NOT_OURS: Final = "the server was not started by this command"


class _Refused:
    """A fault that is not allowed here."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def reason_not(self) -> str | None:
        """As of every injector."""
        return self._reason

    def inject(self, planned: Planned) -> Injected | None:
        """It never is."""
        return None


def injectors_of(
    server: Served | Attached, ground: Ground, proxies: Proxies
) -> dict[str, Injector]:
    """One for each fault."""
    processes = server.processes
    is_ours = isinstance(server, Served)
    made: dict[str, Injector] = {}
    for kind in KINDS:
        refusal = server.no_gateway if kind == "gateway" and is_ours else None
        made[f"kill-{kind}"] = Kill(processes.of(kind), refusal)
        made[f"stop-{kind}"] = Stop(processes.of(kind), refusal)
    made["kill-server"] = (
        Kill(processes.of("server"), afterwards=server.start_again)
        if is_ours
        else _Refused(f"{NOT_OURS}, which could not start it again")
    )
    made["full-disk"] = _Refused(NOT_OURS) if ground.disk is None else FullDisk(ground.disk)
    made["faulty-proxy"] = FaultyProxy(proxies)
    made["no-descriptors"] = NoDescriptors(
        processes.of("server", is_ready=True) | processes.of("keeper")
    )
    made["memory-limit"] = _Refused(NOT_OURS) if ground.group is None else MemoryLimit(ground.group)
    made["clock-jump"] = _Refused(NOT_OURS) if ground.clock is None else ClockJump(ground.clock)
    return made
