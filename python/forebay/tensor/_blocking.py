"""Calls carried out by the thread that makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay.errors import StaleError
from forebay.tensor._outcome import Arrivals, cancel, raise_failure, take_versions

if TYPE_CHECKING:
    from forebay.tensor._ref import Book
    from forebay.tensor._work import Work

__all__ = ["Links", "each", "run"]

Links = dict[int, _core.TensorLink]
"""Connections by shard."""


def run(book: Book, work: Work, links: Links, timeout: float | None, versions: Any) -> None:
    """Carry a call out, and wait for its end.

    With one shard that is one call of the core; Python sees none of the items.
    """
    if len(links) != 1 or work.owners:
        _run_parts(book, work, links, timeout, versions)
        return
    link, entries = links[0], work.parts[0]
    try:
        if work.pushes:
            link.push_many(entries, timeout, versions)
        else:
            link.pull_many(entries, timeout, versions)
    except StaleError:
        book.forget(work)
        raise


def _run_parts(book: Book, work: Work, links: Links, timeout: float | None, versions: Any) -> None:
    batches: list[_core.TensorBatch] = []
    try:
        for shard, entries in work.parts.items():
            pulls, pushes = ((), entries) if work.pushes else (entries, ())
            asked = versions is not None
            batches.append(links[shard].begin(pulls, pushes, timeout, versions=asked))
        for batch in batches:
            batch.wait()
    finally:
        cancel(batches)
    raise_failure(book, work, batches)
    take_versions(work, batches, versions)


def each(book: Book, work: Work, links: Links, timeout: float | None) -> Iterator[tuple[int, Any]]:
    """Carry pulls out, and give each that is whole."""
    arrivals = Arrivals(book, work)
    if len(links) == 1:
        ((shard, entries),) = work.parts.items()
        batch = links[shard].begin(entries, (), timeout)
        try:
            while arrivals.left:
                for item in arrivals.take(shard, batch, batch.wait(each=True)):
                    yield item, work.arrays[item]
        finally:
            cancel([batch])
        return
    yield from _each_of_several(work, links, timeout, arrivals)


def _each_of_several(
    work: Work, links: Links, timeout: float | None, arrivals: Arrivals
) -> Iterator[tuple[int, Any]]:
    """With several shards a port hears of all of them at once."""
    port = _core.TensorPort()
    batches: dict[int, _core.TensorBatch] = {}
    try:
        for shard, entries in work.parts.items():
            batches[shard] = links[shard].start(port, shard, entries, each=True, timeout=timeout)
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
