"""Learning the process of a new service, which the keeper reports while the service starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.errors import BrokenError, DeadlineError
from forebay.pool.lend.step import Steps, Until
from forebay.pool.watch.death import DeathNotice

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.lend.record import Record
    from forebay.pool.lend.wait import Deadline


def learn_process(core: _core.Pool, record: Record, deadline: Deadline) -> Steps[None]:
    """Wait until the process of a service that has answered its start is known, and lend it."""
    notice = DeathNotice(core, record.handle)

    def known(queue: _core.WakeQueue) -> bool:
        # Another thread may take the keeper's report after the first `lent()` and before
        # `notice.found` asks for a notification, so `lent()` is called again.
        return lent() or notice.found(queue) or lent()

    def lent() -> bool:
        return core.lend(record.handle, record.kind.key) is not None

    yield Until(known, deadline)
    process = core.process(record.handle)
    if notice.told is not None:
        raise BrokenError(f"service {record.kind.name} ended when it was ready")
    if process is None:
        raise DeadlineError("the keeper did not report a process id in time")
    record.known(*process)
