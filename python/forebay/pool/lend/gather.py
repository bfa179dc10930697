"""Calls on the services of several leases at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay._steps import block
from forebay.errors import BrokenError
from forebay.pool.lend.lease import Lease
from forebay.rpc._internal import Gather, Message, message

__all__ = ["LeaseGather", "call_many", "pidfd_of"]


class LeaseGather:
    """Begins one call on each of some leases, and waits for all of them in one thread.

    A call affects its lease as a single call does: one that timed out, was cancelled or broke the
    connection makes its own lease dirty, and no other.

    Args:
        leases: distinct leases of Python services, from a blocking acquire.

    Raises:
        StaleError: a lease has ended.
        ConfigError: a lease is of a program.

    Thread affinity: none, one thread at a time.
    """

    __slots__ = ("_call_timeout", "_gather", "_leases")

    def __init__(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            lease._check()
        self._leases = list(leases)
        limits = (lease._python().kind.call_timeout for lease in leases)
        self._call_timeout = min((limit for limit in limits if limit is not None), default=None)
        self._gather = Gather(
            [lease._python().channel for lease in leases],
            [lease._handle.tag for lease in leases],
        )

    def begin(self, messages: list[Message], *, timeout: float | None = None) -> None:
        """Begin one call on each lease, in their order; arguments as of `rpc.Gather.begin`.

        Without a timeout, all of them end within the shortest `call_timeout` of their limits.

        Raises:
            StaleError: a lease has ended.
        """
        for lease in self._leases:
            if not lease._open:
                lease._check()
        if timeout is None:
            timeout = self._call_timeout
        self._gather.begin(messages, timeout=timeout)

    def finish(
        self, *, timeout: float | None = None, look: bool = False
    ) -> tuple[list[Any], dict[int, BaseException]]:
        """Wait for the answers: what each call returned, and the errors by the number of the call.

        Arguments as of `rpc.Gather.finish`.
        Errors are those of a single call on a lease; a service that ended comes as DiedError with
        its cause and last output.
        Interrupting (Ctrl-C) makes every one of the leases dirty.
        """
        try:
            results, errors = self._gather.finish(timeout=timeout, look=look)
        except BaseException as interrupt:
            for lease in self._leases:
                lease._weigh(interrupt)
            raise
        for place, error in errors.items():
            errors[place] = self._judge(self._leases[place], error)
        return results, errors

    def _judge(self, lease: Lease, error: BaseException) -> BaseException:
        lease._weigh(error)
        if not isinstance(error, BrokenError):
            return error
        pool, record = lease._pool, lease._record
        return block(pool.explain(record.handle, record.kind.name, error), pool)


def call_many(
    calls: Sequence[tuple[Any, str, tuple[Any, ...]]],
    *,
    timeout: float | None = None,
    return_errors: bool = False,
) -> list[Any]:
    """Call several leased services at once and wait for all of them.

    Args:
        calls: a proxy from a blocking acquire, the name of a method and its arguments, for each;
            no service twice.
        timeout: seconds from now until all answers; None: the shortest `call_timeout` of the limits
            of these services, where one has any.
        return_errors: return an exception in place of a result, rather than raise the first one.

    Returns:
        What each call returned, in their order.

    Raises:
        The first error, once all calls have ended; its notes name the others.

    Interrupting (Ctrl-C) cancels all of them and makes their leases dirty.
    Cost: that of a single call for each, but one release of the GIL and one sleep for all.
    """
    gather = LeaseGather([service.lease for service, _, _ in calls])
    gather.begin([message(method, args) for _, method, args in calls], timeout=timeout)
    results, errors = gather.finish()
    if errors and not return_errors:
        first, *others = sorted(errors)
        for place in others:
            errors[first].add_note(f"call {place} failed too: {errors[place]}")
        raise errors[first]
    for place, error in errors.items():
        results[place] = error
    return results


def pidfd_of(lease: Lease) -> int:
    """The pidfd of a lease's service; the lease keeps it, so do not close it."""
    lease._check()
    return lease._python().channel._pidfd
