"""What a request knows of its run; outside of a server, and where a worker is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import forebay
from forebay.executor.app.context import Context, outside

Told = list[tuple[int, int | None, str, str]]


class Ear:
    """Hears what a context tells its worker."""

    def __init__(self) -> None:
        self.told: Told = []
        self.wanted = False

    def tell_progress(
        self, id: str, attempt: int, done: int, total: int | None, message: str, unit: str
    ) -> None:
        assert (id, attempt) == ("000000000001", 2)
        self.told.append((done, total, message, unit))

    def is_cancelled(self, id: str, attempt: int) -> bool:
        return self.wanted


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def context(ear: Ear) -> Context:
    return Context("000000000001", 2, "work", timeout=60.0, reporter=ear)


def test_progress_is_told_at_its_begin_and_its_end(context: Context, ear: Ear):
    """A bar is there within the first step, and full at the last."""
    assert list(context.progress("abc", message="reading", unit="letters")) == ["a", "b", "c"]
    assert ear.told[0] == (0, 3, "reading", "letters")
    assert ear.told[-1] == (3, 3, "reading", "letters")


def test_progress_of_unknown_length_ends_with_what_was_done(context: Context, ear: Ear):
    """A generator has no length; how many there were is known at the end."""
    for number in context.progress(iter(range(10))):
        if number == 4:
            break
    assert ear.told[0][:2] == (0, None)
    assert ear.told[-1][0] == 4


def test_progress_by_hand(context: Context, ear: Ear):
    """What is no loop tells its steps itself, with a message for each."""
    progress = context.progress(total=10)
    progress.message = "half"
    progress.advance(10)
    assert ear.told == [(0, 10, "", ""), (10, 10, "half", "")]


def test_progress_of_a_number_is_a_mistake(context: Context):
    """As other libraries have it; nothing would be told, and nobody would know why."""
    with pytest.raises(TypeError, match="progress was given 3, which cannot be iterated"):
        context.progress(3, 10)  # type: ignore[call-overload]


def test_progress_is_told_ten_times_a_second_at_most(context: Context, ear: Ear):
    """A million steps are a few records."""
    started = time.monotonic()
    for _ in context.progress(range(300_000)):
        pass
    assert len(ear.told) <= 3 + (time.monotonic() - started) * 10


def test_progress_of_an_async_iteration(context: Context, ear: Ear):
    """`async for` is a loop too."""

    async def letters() -> AsyncIterator[str]:
        for letter in "abc":
            yield letter

    async def work() -> list[str]:
        return [letter async for letter in context.progress(letters(), 3)]

    assert asyncio.run(work()) == ["a", "b", "c"]
    assert ear.told[-1][:2] == (3, 3)


def test_progress_that_iterates_nothing_says_so(context: Context):
    """`for` over a bar without items is a mistake."""
    with pytest.raises(TypeError, match=r"advance\(\)"):
        list(context.progress(total=3))


def test_deadline_is_when_the_time_out_ends_it(context: Context):
    """What asks others in turn passes on what remains."""
    assert context.deadline is not None
    assert context.remaining is not None
    assert 59 < context.remaining <= 60
    assert context.deadline - time.monotonic() == pytest.approx(context.remaining, abs=1)
    assert Context("x", 1, "work").remaining is None


def test_cancelled_is_asked_of_the_worker(context: Context, ear: Ear):
    """Threads of a request look, because nothing is raised in them."""
    assert not context.cancelled()
    ear.wanted = True
    assert context.cancelled()


def test_context_outside_of_a_server_does_nothing():
    """A function that is called directly runs as it would have without Forebay."""
    made = outside("work")
    assert (made.id, made.attempt, made.deadline, made.cancelled()) == ("local", 1, None, False)
    assert list(made.progress([1, 2])) == [1, 2]
    made.tell(1, 2, "", "")


def test_logger_outside_of_a_server_is_a_plain_one(caplog: Any):
    """The library configures nothing."""
    logger = outside("plain").log
    with caplog.at_level("INFO"):
        logger.info("a line")
    assert "a line" in caplog.text
    assert not logger.handlers


def test_arena_is_one_for_the_process():
    """Blocks of several requests share chunks."""
    made = outside("work")
    assert made.arena is outside("other").arena
    block = made.arena.allocate(100)
    assert len(block) == 100
    block.free()
    assert isinstance(made.arena, forebay.Arena)
    made.arena.close()
