"""Pulls that are prepared once, to be made repeatedly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from forebay._numpy import np
from forebay.tensor.client.blocking import run
from forebay.tensor.prepare.rows import lent
from forebay.tensor.prepare.work import Work, check_versions, pulls_of

if TYPE_CHECKING:
    from forebay._core import TensorPlan
    from forebay.memory import Arena
    from forebay.tensor.client.async_shards import AsyncShards
    from forebay.tensor.client.blocking import Links
    from forebay.tensor.client.client import TensorClient
    from forebay.tensor.prepare.ref import NameTable

__all__ = ["AsyncPullPlan", "PullPlan"]


class _Prepared:
    """Pulls as the core takes them, for as long as their names mean what they meant."""

    __slots__ = ("_arena", "_pulls", "_varies", "arrays", "work")

    def __init__(self, pulls: Iterable[Any], arena: Arena | None) -> None:
        self._pulls = tuple(pulls)
        self._arena = arena
        self._varies = False
        self.arrays: list[Any] = []
        self.work: Work | None = None

    def make(self, table: NameTable) -> Work:
        """The call, made again only where that is needed."""
        work = self.work
        if work is not None and work.epoch == table.epoch and not self._varies:
            return work
        work = pulls_of(table, self._pulls, self._arena, lent)
        if work.missing:
            return work
        if self.work is None:
            self.arrays = work.arrays
            self._pulls = tuple(
                (meaning.name, _rows_of(pull), array)
                for meaning, pull, array in zip(
                    work.meanings, self._pulls, work.arrays, strict=True
                )
            )
            # With several shards, which of them holds a row is known once the number is.
            self._varies = bool(work.owners) and any(
                isinstance(rows, np.ndarray) for _, rows, _ in self._pulls
            )
        self.work = work
        return work

    def of_shm(self, links: Links) -> tuple[TensorPlan, ...] | None:
        """The call as plans of shared memory, where every connection reads that."""
        work = self.work
        if work is None or self._varies or any(link.fabric != "shm" for link in links.values()):
            return None
        return tuple(links[shard].plan(entries) for shard, entries in work.parts.items())


def _rows_of(pull: Any) -> Any:
    return pull[1] if isinstance(pull, tuple | list) and len(pull) > 1 else None


class PullPlan:
    """Pulls that are prepared; made by `TensorClient.plan`.

    Row numbers are read from their arrays each time, and rows land in the same arrays each time;
    both are lent while a pull runs. After a tensor was replaced, or its server restarted, the
    next pull prepares it again, and refuses where its shape has become another.

    Threads: any, one at a time.
    """

    __slots__ = ("_client", "_prepared", "_shm", "_used")

    def __init__(self, client: TensorClient, pulls: Iterable[Any], arena: Arena | None) -> None:
        self._client = client
        self._prepared = _Prepared(pulls, arena)
        self._shm: tuple[TensorPlan, ...] | None = None
        self._used: tuple[Work | None, Links] = (None, {})

    @property
    def arrays(self) -> list[Any]:
        """What is pulled into, in the order of the pulls."""
        return self._prepared.arrays

    def prepare(self, timeout: float | None) -> None:
        """Look the names up; done when it is made."""
        self._client._shards.ready(self._prepared.make, timeout)[0].check_outs()

    def pull(self, *, timeout: float | None = None, versions: Any = None) -> list[Any]:
        """Make the pulls; arguments, result and errors are those of `TensorClient.pull_many`.

        Cost: one call of the core, nothing for each pull in Python. From shared memory that is all.
        """
        if self._shm is not None and versions is None:
            for part in self._shm:
                if not part.read():
                    break
            else:
                return self._prepared.arrays
        client, prepared = self._client, self._prepared
        work, links, timeout = client._shards.ready(prepared.make, timeout)
        if versions is not None:
            check_versions(versions, len(work.arrays))
        run(client, work, links, timeout, versions)
        if self._used != (work, links):
            self._used = (work, links)
            self._shm = prepared.of_shm(links)
        return work.arrays

    def __repr__(self) -> str:
        return f"<PullPlan of {len(self.arrays)} pulls>"


class AsyncPullPlan:
    """The same on an event loop; made by `AsyncTensorClient.plan`.

    Threads: that of its loop alone, one pull at a time.
    """

    __slots__ = ("_prepared", "_shards")

    def __init__(self, shards: AsyncShards, pulls: Iterable[Any], arena: Arena | None) -> None:
        self._shards = shards
        self._prepared = _Prepared(pulls, arena)

    @property
    def arrays(self) -> list[Any]:
        """What is pulled into, in the order of the pulls."""
        return self._prepared.arrays

    async def prepare(self, timeout: float | None) -> None:
        """Look the names up; done when it is made."""
        (await self._shards.ready(self._prepared.make, timeout))[0].check_outs()

    async def pull(self, *, timeout: float | None = None, versions: Any = None) -> list[Any]:
        """Make the pulls; see `PullPlan.pull`. Cancellation: as `AsyncTensorClient.pull`."""
        return await self._shards.run(self._prepared.make, timeout, versions)

    def __repr__(self) -> str:
        return f"<AsyncPullPlan of {len(self.arrays)} pulls>"
