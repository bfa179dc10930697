"""Calls carried out by the thread that makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay.errors import StaleError
from forebay.tensor.client.outcome import Arrivals, cancel, raise_failure, take_versions

if TYPE_CHECKING:
    from forebay.tensor.client.client import TensorClient
    from forebay.tensor.client.shards import Shards
    from forebay.tensor.prepare.work import Work

__all__ = ["Links", "each", "run"]

Links = dict[int, _core.TensorLink]
"""Connections by shard."""


def run(
    client: TensorClient, work: Work, links: Links, timeout: float | None, versions: Any
) -> None:
    """Carry a call out, and wait for its end.

    With one shard that is one call of the core; Python sees none of the items.
    """
    try:
        if len(links) != 1 or work.owners:
            _run_parts(client._shards, work, links, timeout, versions)
            return
        link, entries = links[0], work.parts[0]
        if work.pushes:
            link.push_many(entries, timeout, versions)
        else:
            link.pull_many(entries, timeout, versions)
    except StaleError:
        client._shards.table.forget(work)
        raise
    except BaseException:
        _attend(client, links)
        raise


def _attend(client: TensorClient, links: Links) -> None:
    """A call may have been given up: have the thread of futures receive what still comes for it."""
    for link in links.values():
        if not link.closed and link.metrics()["outstanding"]:
            link.attend(client._enter().port)


def _run_parts(
    shards: Shards, work: Work, links: Links, timeout: float | None, versions: Any
) -> None:
    """With several shards one port drives all of them, so that none waits for another."""
    port = shards.ports.pop() if shards.ports else _core.TensorPort()
    batches: list[_core.TensorBatch] = []
    try:
        for shard, entries in work.parts.items():
            pulls, pushes = ((), entries) if work.pushes else (entries, ())
            start = links[shard].start
            asked = versions is not None
            batches.append(start(port, shard, pulls, pushes, timeout=timeout, versions=asked))
        while not all(batch.done for batch in batches):
            port.wait()
    except BaseException:
        cancel(batches)
        port.close()
        raise
    shards.ports.append(port)
    raise_failure(shards.table, work, batches)
    take_versions(work, batches, versions)


def each(
    client: TensorClient, work: Work, links: Links, timeout: float | None
) -> Iterator[tuple[int, Any]]:
    """Carry pulls out, and give each that is whole.

    The caller may do other work between two of them, so the thread of futures drives them.
    """
    arrivals = Arrivals(client._shards.table, work)
    driver = client._enter().port
    port = _core.TensorPort()
    batches: dict[int, _core.TensorBatch] = {}
    try:
        for shard, entries in work.parts.items():
            start = links[shard].start
            batches[shard] = start(port, shard, entries, each=True, timeout=timeout, driver=driver)
        news = list(batches)  # a batch may be done before its port is asked
        while arrivals.left:
            for shard in news:
                batch = batches[shard]
                for item in arrivals.take(shard, batch, batch.arrived()):
                    yield item, work.arrays[item]
            if arrivals.left:
                news = port.wait() or []
    finally:
        cancel(tuple(batches.values()))
        port.close()
