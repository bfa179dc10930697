from __future__ import annotations

import asyncio
import collections
from typing import Any

import pytest

import forebay
from forebay.pool import Reset


class Engine:
    """Any object: it knows nothing of Forebay."""

    def __init__(self, letters: str, times: int) -> None:
        self.letters = letters * times
        self.calls = 0

    def size(self) -> int:
        """Count calls, too."""
        self.calls += 1
        return len(self.letters) + self.calls - 1

    def reset(self) -> str:
        """What environments call an episode's beginning."""
        self.calls = 0
        return "again"

    def _private(self) -> None: ...


def make_engine(letters: str, times: int = 1) -> Engine:
    """A factory."""
    return Engine(letters, times)


def make_nothing() -> Any:
    """A factory that fails."""
    raise LookupError("no engine today")


def test_whatever_a_function_returns_is_a_service(pool: forebay.ServicePool) -> None:
    """Its public methods are the service's."""
    with pool.acquire(forebay.factory(make_engine, "ab", times=3)) as engine:
        assert engine.size() == 6
        assert "size" in dir(engine)
        with pytest.raises(AttributeError, match="did you mean 'size'"):
            engine.sise()
        with pytest.raises(AttributeError):
            engine._private()


def test_a_class_of_somebody_else_is_a_factory(pool: forebay.ServicePool) -> None:
    """Nothing has to be inherited."""
    with pool.acquire(forebay.factory(collections.Counter, "hello")) as counter:
        assert counter.most_common(1) == [("l", 2)]


def test_equal_factories_share_their_services(pool: forebay.ServicePool) -> None:
    """The function and its arguments are what counts, not the description's identity."""
    with pool.acquire(forebay.factory(make_engine, "ab")) as engine:
        pid = engine.lease.pid
    with pool.acquire(forebay.factory(make_engine, "ab")) as engine:
        assert engine.lease.pid == pid
    with pool.acquire(forebay.factory(make_engine, "abc")) as engine:
        assert engine.lease.pid != pid
        assert engine.size() == 3


def test_a_factory_serves_an_event_loop(pool: forebay.ServicePool) -> None:
    """Its methods are coroutines there."""

    async def main() -> int:
        async with pool.acquire(forebay.factory(make_engine, "abcd")) as engine:
            size: int = await engine.size()
            return size

    assert asyncio.run(main(), debug=True) == 4


@pytest.mark.parametrize(
    ("resets", "second"),
    [(Reset.STATELESS, 2), (Reset.METHOD, 1), (Reset.NEVER, 1), (Reset.FORK, 1)],
)
def test_how_it_is_made_clean_is_said(
    pool: forebay.ServicePool, resets: Reset, second: int
) -> None:
    """An object that keeps state is lent as it is only where its user says that it may."""
    made = forebay.factory(make_engine, "x").resetting(resets)
    with pool.acquire(made) as engine:
        assert engine.size() == 1
    with pool.acquire(made) as engine:
        assert engine.size() == second


def test_a_method_called_reset_is_the_objects_own(pool: forebay.ServicePool) -> None:
    """Environments have one that their users call."""
    with pool.acquire(forebay.factory(make_engine, "x")) as engine:
        engine.size()
        assert engine.reset() == "again"
        assert engine.size() == 1


def test_a_factory_that_raises_is_told(pool: forebay.ServicePool) -> None:
    """As a constructor that raises."""
    raising = pytest.raises(LookupError, match="no engine today")
    with raising, pool.acquire(forebay.factory(make_nothing)):
        pass
    assert pool.stats()["live"] == 0


def test_a_function_that_cannot_be_found_goes_by_value(pool: forebay.ServicePool) -> None:
    """As a class does, where that is asked for."""
    with pytest.raises(forebay.ConfigError, match=r"a lambda has no name .* by_value=True"):
        pool.acquire(forebay.factory(lambda: [1, 2, 1]))
    with pool.acquire(forebay.factory(lambda: [1, 2, 1]), by_value=True) as numbers:
        assert numbers.count(1) == 2


def test_what_is_no_function_is_refused() -> None:
    """A mistake is told where it is made."""
    with pytest.raises(forebay.ConfigError):
        forebay.factory(Engine("x", 1))  # type: ignore[arg-type]
