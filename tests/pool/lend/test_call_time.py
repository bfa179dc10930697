"""Calls that take longer than their service allows."""

from __future__ import annotations

import asyncio

import pytest

import forebay
from tests.pool.limited import Hasty
from tests.pool.processes import alive, eventually


def test_a_call_past_its_time_ends_its_service(pool: forebay.ServicePool) -> None:
    """A runaway call stops at once, not when its lease ends; both calls say why."""
    with pool.acquire(Hasty) as hog:
        pid = hog.lease.pid
        with pytest.raises(forebay.DeadlineError) as late:
            hog.hang()
        assert "call_timeout" in late.value.__notes__[0]
        assert eventually(lambda: not alive(pid))
        with pytest.raises(forebay.DiedError, match="call_timeout") as died:
            hog.grow(1)
        assert died.value.cause == "call_deadline"
    with pool.acquire(Hasty) as successor:
        assert successor.grow(1) == 1


def test_a_caller_may_give_a_call_more_time(pool: forebay.ServicePool) -> None:
    """What one call is known to need is no reason to loosen all."""
    with pool.acquire(Hasty) as hog:
        assert hog.lease.options(timeout=10.0).spin(1.2) > 0
        assert hog.grow(1) == 1


def test_submitted_and_awaited_calls_have_their_time(pool: forebay.ServicePool) -> None:
    """Every way of calling is held to it."""
    with pool.acquire(Hasty) as hog:
        pid = hog.lease.pid
        assert isinstance(hog.lease.submit("hang").exception(10), forebay.DeadlineError)
        assert eventually(lambda: not alive(pid))

    async def main() -> int:
        async with pool.acquire(Hasty) as hog:
            with pytest.raises(forebay.DeadlineError):
                await hog.hang()
            return int(hog.lease.pid)

    pid = asyncio.run(main())
    assert eventually(lambda: not alive(pid))


def test_the_time_of_a_call_makes_no_other_service() -> None:
    """What the client alone watches over does not split a pool."""
    patient, hasty = (forebay.Limits(memory="1GB", call_timeout=each) for each in (1, 60))
    small = forebay.Limits(memory="2MB")
    assert patient.terms == hasty.terms != small.terms


def test_a_program_has_no_time_of_a_call() -> None:
    """What a call of it is only its client knows; a limit that nobody watches over is refused."""
    with pytest.raises(forebay.ConfigError, match=r"call_timeout=5.*options\(timeout=\)"):
        forebay.Command(["cat", "{fd}"], limits=forebay.Limits(call_timeout=5))
