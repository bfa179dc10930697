"""The asyncio face of a tensor server's client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from forebay._numpy import Array
from forebay.errors import StaleError
from forebay.tensor.client.async_shards import AsyncShards
from forebay.tensor.client.plan import AsyncPullPlan
from forebay.tensor.client.shards import summed
from forebay.tensor.prepare.ref import TensorRef
from forebay.tensor.prepare.work import Op

if TYPE_CHECKING:
    from forebay.tensor.client.client import TensorClient

__all__ = ["AsyncTensorClient"]


class AsyncTensorClient:
    """A client in one event loop; made by `async with TensorClient(...)`, shared by its tasks.

    The methods are those of `TensorClient`, awaited: same arguments, results and errors. It has
    connections of its own, made on first use, so the loop waits behind no thread.
    Memory is lent until the method returns. If it is cancelled, memory is kept until no server
    writes it; what it holds then is undefined.

    Cancellation: safe for all methods; a push may have been applied, wholly or in part.
    Cost: one wake-up for all that came together.

    Attributes:
        client: the client itself, for the faces of other threads.

    Threads: that of its loop alone; any number of tasks.
    """

    def __init__(self, client: TensorClient) -> None:
        self.client = client
        self._shards = AsyncShards(client._settings)

    @property
    def urls(self) -> tuple[str, ...]:
        """Where the shards are, the first row's first."""
        return self.client.urls

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._shards.closed

    async def tensor(self, name: str, *, timeout: float | None = None) -> TensorRef:
        """Look a tensor up; see `TensorClient.tensor`."""
        await self._shards.names(name, timeout)
        ref = self._shards.table.ref(name)
        if ref is None:
            raise StaleError(f"tensor {name!r} was replaced while it was looked up; try again")
        return ref

    async def pull(
        self,
        tensor: str | TensorRef,
        rows: Any = None,
        out: Array | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Pull rows of a tensor; see `TensorClient.pull`."""
        return (await self._shards.run(self._calls.pull(tensor, rows, out), timeout))[0]

    async def push(
        self,
        tensor: str | TensorRef,
        rows: Any,
        values: Any,
        op: Op = "set",
        *,
        timeout: float | None = None,
    ) -> None:
        """Replace rows of a tensor, or add to them; see `TensorClient.push`."""
        await self._shards.run(self._calls.push(tensor, rows, values, op), timeout)

    async def pull_many(
        self, pulls: Iterable[Any], *, versions: Any = None, timeout: float | None = None
    ) -> list[Any]:
        """Pull several; see `TensorClient.pull_many`."""
        return await self._shards.run(self._calls.pull_many(pulls), timeout, versions)

    async def push_many(
        self, pushes: Iterable[Any], *, versions: Any = None, timeout: float | None = None
    ) -> None:
        """Push several; see `TensorClient.push_many`."""
        await self._shards.run(self._calls.push_many(pushes), timeout, versions)

    def pull_each(
        self, pulls: Iterable[Any], *, timeout: float | None = None
    ) -> AsyncIterator[tuple[int, Any]]:
        """Pull several, and give each as soon as it is there; see `TensorClient.pull_each`.

        To leave its `async for` early, close it by `contextlib.aclosing`, which cancels the rest.
        """
        return self._shards.each(self._calls.pull_many(pulls), timeout)

    async def plan(self, pulls: Iterable[Any], *, timeout: float | None = None) -> AsyncPullPlan:
        """Prepare pulls that are made again and again; see `TensorClient.plan`."""
        plan = AsyncPullPlan(self._shards, pulls, self._calls.arena)
        await plan.prepare(timeout)
        return plan

    def metrics(self) -> dict[str, Any]:
        """What the connections of this loop have; see `TensorClient.metrics`."""
        return summed(self._shards.metrics())

    async def aclose(self) -> None:
        """Close the connections of this loop; what is outstanding ends with `ClosedError`.

        For all tasks of the loop; leaving `async with` closes it with the last task that entered.
        Idempotent, and never waits.
        """
        self._shards.close()

    @property
    def _calls(self) -> Any:
        return self.client._calls
