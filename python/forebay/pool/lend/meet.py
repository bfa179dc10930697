"""Learning the process of a new service, which the keeper tells while the service starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.errors import BrokenError, DeadlineError
from forebay.pool.lend.step import Steps, Until
from forebay.pool.watch.death import Obituary

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.lend.record import Record
    from forebay.pool.lend.wait import Deadline


def meet(pool: ServicePool, record: Record, deadline: Deadline) -> Steps[None]:
    """Until the process of a service that has answered its start is known; then it is lent."""
    core = pool.core
    obituary = Obituary(core, record.handle)

    def known(queue: _core.WakeQueue) -> bool:
        # Another thread may take the keeper's word between the look and asking to be told, so
        # that it is looked for once more.
        return lent() or obituary.found(queue) or lent()

    def lent() -> bool:
        return core.lend(record.handle, record.kind.key) is not None

    yield Until(known, deadline)
    process = core.process(record.handle)
    if obituary.told is not None:
        raise BrokenError(f"service {record.kind.name} ended when it was ready")
    if process is None:
        raise DeadlineError("the keeper did not report a process id in time")
    record.known(*process)
