"""The three faces of block I/O, called in one way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from forebay.blockio import AsyncBlockFile, BlockFile, Queue
from forebay.errors import BlockError

TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Call:
    """A method of a file by its number, or `run` of the queue."""

    method: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    file: int = 0


Outcome = list[int] | tuple[int, int]
"""The results, or index and errno of the `BlockError` that was raised."""


def outcome_of(result: object) -> Outcome:
    """What a call returned or raised, the same for all faces."""
    if isinstance(result, BlockError):
        assert result.index is not None
        assert result.errno is not None
        return (result.index, result.errno)
    if isinstance(result, BaseException):
        raise result
    if result is None or isinstance(result, int):
        return [result or 0]
    return result.tolist()  # type: ignore[attr-defined, no-any-return]


class Faces:
    """A queue, and files on it, by all of their faces."""

    def __init__(self, queue: Queue, files: Sequence[BlockFile]) -> None:
        self.queue = queue
        self.files = list(files)
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._entered: list[AsyncBlockFile] = []
        try:
            self._runner.run(self._enter())
        except BaseException:
            self._runner.close()
            raise

    async def _enter(self) -> None:
        self._async_queue = await self._stack.enter_async_context(self.queue)
        for file in self.files:
            self._entered.append(await self._stack.enter_async_context(file))

    def close(self) -> None:
        """Close the files and the queue."""
        try:
            self._runner.run(self._stack.aclose())
        finally:
            self._runner.close()

    def blocking(self, calls: Sequence[Call]) -> list[Outcome]:
        """Make one call after the other."""
        results: list[object] = []
        for call in calls:
            target = self.queue if call.method == "run" else self.files[call.file]
            try:
                results.append(getattr(target, call.method)(*call.arguments, **call.options))
            except BlockError as error:
                results.append(error)
        return [outcome_of(result) for result in results]

    def futures(self, calls: Sequence[Call]) -> list[Outcome]:
        """Submit all, then wait for them."""
        submitted = []
        for call in calls:
            if call.method == "run":
                submitted.append(self.queue.submit(*call.arguments, **call.options))
            else:
                file: Any = self.files[call.file]
                submitted.append(file.submit(call.method, *call.arguments, **call.options))
        return [outcome_of(one.exception(TIMEOUT_S) or one.result()) for one in submitted]

    def asyncio(self, calls: Sequence[Call]) -> list[Outcome]:
        """Await all at once."""

        async def main() -> list[object]:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.gather(*map(self._begin, calls), return_exceptions=True)

        return [outcome_of(result) for result in self._runner.run(main())]

    def _begin(self, call: Call) -> Awaitable[object]:
        target: Any = self._async_queue if call.method == "run" else self._entered[call.file]
        begun: Awaitable[object] = getattr(target, call.method)(*call.arguments, **call.options)
        return begun


FACES = ("blocking", "futures", "asyncio")
