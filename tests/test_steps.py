"""One procedure, run by a thread and by an event loop."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import pytest

from forebay._steps import Either, awaited, block

Procedure = Generator["Ask", Any, Any]
Drive = Callable[[Generator[Any, Any, Any], list[str]], Any]


class Ask:
    """A step that gives what it was told, or raises it, and notes in the context how it waited."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def block(self, context: list[str]) -> Any:
        context.append("blocked")
        return self._given()

    async def wait(self, context: list[str]) -> Any:
        context.append("awaited")
        await asyncio.sleep(0)
        return self._given()

    def _given(self) -> object:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer


def run_awaited(steps: Generator[Any, Any, Any], context: list[str]) -> Any:
    async def main() -> Any:
        return await awaited(steps, context)

    return asyncio.run(main())


both = pytest.mark.parametrize(
    ("drive", "how"), [(block, "blocked"), (run_awaited, "awaited")], ids=["thread", "loop"]
)


@both
def test_the_value_is_that_of_the_procedure(drive: Drive, how: str) -> None:
    def procedure() -> Procedure:
        yield from ()
        return "done"

    context: list[str] = []
    assert drive(procedure(), context) == "done"
    assert context == []


@both
def test_what_a_step_gives_comes_back_to_the_procedure(drive: Drive, how: str) -> None:
    def inner() -> Procedure:
        return (yield Ask(2)) + 1

    def procedure() -> Procedure:
        first = yield Ask(1)
        second = yield from inner()
        return [first, second]

    context: list[str] = []
    assert drive(procedure(), context) == [1, 3]
    assert context == [how, how]


@both
def test_an_error_is_raised_at_the_step(drive: Drive, how: str) -> None:
    def procedure() -> Procedure:
        try:
            yield Ask(LookupError("lost"))
        except LookupError as error:
            return [str(error), (yield Ask("after"))]

    assert drive(procedure(), []) == ["lost", "after"]


@both
@pytest.mark.parametrize("kind", [LookupError, KeyboardInterrupt, TimeoutError])
def test_an_error_that_is_not_caught_leaves_both(
    drive: Drive, how: str, kind: type[BaseException]
) -> None:
    ended = []

    def procedure() -> Procedure:
        try:
            yield Ask(kind())
        finally:
            ended.append(True)

    with pytest.raises(kind):
        drive(procedure(), [])
    assert ended == [True]


@both
def test_an_error_of_the_procedure_is_the_callers(drive: Drive, how: str) -> None:
    def procedure() -> Procedure:
        yield Ask(None)
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        drive(procedure(), [])


@both
def test_a_step_that_ends_an_iteration_ends_no_procedure(drive: Drive, how: str) -> None:
    """A `StopIteration` of a step must not pass for the procedure's value."""

    def procedure() -> Procedure:
        yield Ask(StopIteration("not a value"))
        return "a value"

    with pytest.raises(RuntimeError):
        drive(procedure(), [])


@both
def test_a_step_of_two_functions_runs_that_of_its_face(drive: Drive, how: str) -> None:
    async def wait() -> str:
        return "awaited"

    def procedure() -> Generator[Either[str], str, str]:
        return (yield Either(lambda: "blocked", wait))

    assert drive(procedure(), []) == how


def waiting(steps: Procedure) -> Any:
    """A task that runs a procedure, once it waits."""

    async def start() -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(awaited(steps, []))
        await asyncio.sleep(0)
        return task

    return start()


class Never(Ask):
    """A step that does not end by itself."""

    async def wait(self, context: list[str]) -> Any:
        await asyncio.get_running_loop().create_future()


def test_a_cancel_is_raised_at_the_step() -> None:
    seen: list[str] = []

    def procedure() -> Procedure:
        try:
            yield Never(None)
        except asyncio.CancelledError:
            seen.append("cancelled")
            yield Ask(None)  # what is left to do is awaited
            seen.append("given back")
            raise

    async def main() -> None:
        task = await waiting(procedure())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["cancelled", "given back"]


def test_a_procedure_may_swallow_a_cancel() -> None:
    def procedure() -> Procedure:
        try:
            yield Never(None)
        except asyncio.CancelledError:
            return "kept"

    async def main() -> Any:
        task = await waiting(procedure())
        task.cancel()
        return await task

    assert asyncio.run(main()) == "kept"


def test_closing_the_coroutine_closes_the_procedure() -> None:
    seen: list[str] = []

    def procedure() -> Procedure:
        try:
            yield Never(None)
        finally:
            seen.append("closed")

    async def main() -> None:
        coroutine = awaited(procedure(), [])
        coroutine.send(None)
        coroutine.close()

    asyncio.run(main())
    assert seen == ["closed"]


def test_a_procedure_that_waits_on_when_it_is_closed_is_refused() -> None:
    def procedure() -> Procedure:
        try:
            yield Never(None)
        except GeneratorExit:
            yield Never(None)

    async def main() -> None:
        coroutine = awaited(procedure(), [])
        coroutine.send(None)
        with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
            coroutine.close()
        coroutine.throw(LookupError)

    with pytest.raises(LookupError):
        asyncio.run(main())


def test_a_coroutine_that_nobody_awaits_starts_nothing() -> None:
    seen: list[str] = []

    def procedure() -> Procedure:
        try:
            seen.append("started")
            yield Ask(None)
        finally:
            seen.append("ended")

    steps = procedure()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # "was never awaited"
        awaited(steps, [])
        gc.collect()
    assert seen == []
    steps.close()
    assert seen == []


def test_an_interrupt_between_two_steps_closes_the_procedure() -> None:
    """The error's traceback keeps the driver's frame, and so the procedure, alive."""
    seen: list[str] = []
    context: list[str] = []

    def procedure() -> Procedure:
        try:
            yield Ask(None)
        finally:
            seen.append("closed")

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not block.__code__:
            return None
        if event == "line" and context:  # the step has ended
            raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            block(procedure(), context)
    finally:
        sys.settrace(before)
    assert caught.tb is not None
    assert seen == ["closed"]
