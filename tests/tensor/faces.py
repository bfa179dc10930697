"""The three faces of a client, called in one way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvloop

from forebay.tensor import AsyncTensorClient, TensorClient

TIMEOUT_S = 20.0

FACES = ("blocking", "futures", "asyncio", "uvloop")


class Face:
    """One face of a client; `call("pull", ...)` does it and waits.

    Attributes:
        client: whose face it is.
        name: which.
    """

    def __init__(self, name: str, client: TensorClient) -> None:
        self.name = name
        self.client = client

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Make a call and wait for its end."""
        return getattr(self.client, method)(*arguments, **options)

    def close(self) -> None:
        """Close the client."""
        self.client.close()


class FuturesFace(Face):
    """Every call is submitted."""

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Submit a call and wait for its future."""
        return self.client.submit(method, *arguments, **options).result(TIMEOUT_S)  # type: ignore[arg-type]


class AsyncFace(Face):
    """Every call is awaited in one loop."""

    def __init__(self, name: str, client: TensorClient) -> None:
        super().__init__(name, client)
        factory = uvloop.new_event_loop if name == "uvloop" else None
        self._runner = asyncio.Runner(debug=True, loop_factory=factory)
        self._entered: AsyncTensorClient = self._runner.run(client.__aenter__())

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Await a call."""

        async def main() -> Any:
            async with asyncio.timeout(TIMEOUT_S):
                return await getattr(self._entered, method)(*arguments, **options)

        return self._runner.run(main())

    def close(self) -> None:
        """Leave the loop, and close the client."""
        try:
            self._runner.run(self.client.__aexit__(None, None, None))
        finally:
            self._runner.close()


_MAKERS: dict[str, Callable[[str, TensorClient], Face]] = {
    "blocking": Face,
    "futures": FuturesFace,
    "asyncio": AsyncFace,
    "uvloop": AsyncFace,
}


@contextmanager
def face_of(name: str, *arguments: Any, **options: Any) -> Iterator[Face]:
    """Make a client and give one of its faces."""
    face = _MAKERS[name](name, TensorClient(*arguments, **options))
    try:
        yield face
    finally:
        face.close()
