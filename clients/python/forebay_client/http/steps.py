"""Procedures written once, for threads and for event loops.

A procedure is a generator. It does no I/O: it yields a *step*, a function that gets the driver's
I/O (`threads.ThreadIO`, `loops.LoopIO`), and is sent what that gives, or has thrown into it what
that raised. A procedure may also yield an `Item`, which goes to the program that iterates over it.

What a procedure holds is given back by calls that do not wait (`close`, `release`), so that it can
be closed at any step.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Item", "Procedure", "Step", "Stream", "awaited", "block", "iterate", "iterate_async"]

T = TypeVar("T")

Step = Callable[[Any], Any]
"""Gets the I/O; what it gives is awaited on an event loop."""


class Item(Generic[T]):
    """Something for the program that iterates."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value


Procedure = Generator[Step, Any, T]
Stream = Generator[Step | Item[T], Any, None]


def block(procedure: Procedure[T], io: Any) -> T:
    """Run a procedure in this thread."""
    try:
        step = next(procedure)
        while True:
            try:
                result = step(io)
            except BaseException as error:
                step = procedure.throw(error)
            else:
                step = procedure.send(result)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        procedure.close()


async def awaited(procedure: Procedure[T], io: Any) -> T:
    """Run a procedure on the running loop.

    Cancellation: the step that waits is cancelled, and what the procedure holds is given back.
    """
    try:
        step = next(procedure)
        while True:
            try:
                result = await step(io)
            except BaseException as error:
                step = procedure.throw(error)
            else:
                step = procedure.send(result)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        procedure.close()


def iterate(stream: Stream[T], io: Any) -> Generator[T, None, None]:
    """The items of a stream, in this thread."""
    try:
        step = next(stream)
        while True:
            if isinstance(step, Item):
                yield step.value
                step = next(stream)
                continue
            try:
                result = step(io)
            except BaseException as error:
                step = stream.throw(error)
            else:
                step = stream.send(result)
    except StopIteration:
        return
    finally:
        stream.close()


async def iterate_async(stream: Stream[T], io: Any) -> AsyncGenerator[T, None]:
    """The items of a stream that are not None, on the running loop."""
    try:
        step = next(stream)
        while True:
            if isinstance(step, Item):
                if step.value is not None:
                    yield step.value
                step = next(stream)
                continue
            try:
                result = await step(io)
            except BaseException as error:
                step = stream.throw(error)
            else:
                step = stream.send(result)
    except StopIteration:
        return
    finally:
        stream.close()
