"""Long lists of random reads: ours against fio, against Python's peers, and face against face.

Ours hands over lists of 2,048 reads, of which the core submits 32 at a time and keeps 128 in
flight. Where the processor and not the disk decides, fio is held against lists that read into as
much memory as it does, a block for each read in flight; a block for each read of a list, 8 MiB, is
what the rows against the other peers have, and stands beside them in the table.
Two threads with a ring each have one batch of 32 in flight each, as have the two that share a ring
with a completion thread; these are in C, so that Python costs them nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.blockio.load import BATCH
from benchmarks.blockio.meter import CPU, RATE
from benchmarks.claim import OWN, Claim, Contestant, Option

TIMES: dict[str, Option] = {"seconds": 2.0, "warm_up_s": 0.3}
QUICK: dict[str, Option] = {"seconds": 0.7, "warm_up_s": 0.15}
DRIFTING = 7
"""Rounds where a disk is compared with itself: its speed drifts by a third within minutes."""


def _contestant(
    name: str, function: str, environment: str = OWN, options: Mapping[str, Option] = {}
) -> Contestant:
    return Contestant(name, f"benchmarks.{function}", environment, {**TIMES, **options}, QUICK)


def _ours(name: str, face: str, store: str, **options: Option) -> Contestant:
    chosen = {"store": store, **options}
    return _contestant(f"forebay {name}, {store}", f"blockio.forebay:{face}", options=chosen)


def _fio(store: str, name: str = "fio", **options: Option) -> Contestant:
    chosen = {"store": store, "seconds": TIMES["seconds"], **options}
    quick = {"seconds": QUICK["seconds"]}
    return Contestant(f"{name}, {store}", "benchmarks.blockio.fio:fio", OWN, chosen, quick)


def _pool(store: str) -> Contestant:
    options: dict[str, Option] = {"store": store, "threads": 16}
    return _contestant(
        f"16 threads of preadv, {store}", "blockio.peers:thread_pool", options=options
    )


def _row(
    name: str,
    ours: Contestant,
    peer: Contestant,
    *variants: Contestant,
    rounds_min: int = 0,
    optional: bool = False,
) -> Claim:
    return Claim(
        *(f"blockio.{name}", ours, peer, RATE, "reads/s"),
        higher_is_better=True,
        variants=variants,
        rounds_min=rounds_min,
        optional=optional,
    )


DIRECT = _ours("blocking", "blocking", "direct")
CACHED = _ours("blocking", "blocking", "cached")
SAME_MEMORY = "lists, fio's memory"
CACHED_LISTED = _ours(SAME_MEMORY, "listed", "cached")
ZRAM_LISTED = _ours(SAME_MEMORY, "listed", "zram")
AWAITED_DIRECT = _ours("asyncio", "awaited", "direct")
AWAITED_CACHED = _ours("asyncio", "awaited", "cached")
AWAITED_LISTED = _ours("asyncio lists, peers' memory", "awaited_lists", "cached")
FALLBACK_DIRECT = _ours("fallback", "blocking", "direct", engine="threads")
FALLBACK_CACHED = _ours("fallback", "blocking", "cached", engine="threads")
TWO: dict[str, Option] = {"clients": 2, "reads": BATCH}
RING_EACH = _ours("2 threads, a ring each", "threads", "cached", **TWO)

FIO_DIRECT = _fio("direct")
FIO_CACHED = _fio("cached")
FIO_ZRAM = _fio("zram")
FIO_TUNED = _fio("cached", "fio tuned", tuned=1)
CAIO = tuple(
    _contestant(f"caio {backend}", "blockio.peers:caio_reads", "main", {"backend": backend})
    for backend in ("linux_aio", "io_uring", "threads")
)
SHARED_RING = _contestant(
    "2 threads, one ring", "blockio.shared_ring:shared_ring", options={"store": "cached", **TWO}
)
AIOFILES = _contestant("aiofiles", "blockio.peers:aiofiles_reads", "main")

# The direct ones first: they want the file out of the page cache, the others want it there.
CLAIMS = [
    _row("direct.vs_fio", DIRECT, FIO_DIRECT, rounds_min=DRIFTING),
    Claim("blockio.direct.cpu.vs_fio", DIRECT, FIO_DIRECT, CPU, "us", rounds_min=DRIFTING),
    _row("asyncio.direct.vs_fio", AWAITED_DIRECT, FIO_DIRECT, rounds_min=DRIFTING),
    _row("direct.vs_thread_pool", DIRECT, _pool("direct")),
    _row("fallback.direct.vs_ring", FALLBACK_DIRECT, DIRECT),
    _row("zram.vs_fio", ZRAM_LISTED, FIO_ZRAM, optional=True),
    _row("cached.vs_fio", CACHED_LISTED, FIO_CACHED),
    _row("cached.vs_fio_tuned", CACHED_LISTED, FIO_TUNED),
    _row("asyncio.cached.vs_blocking", AWAITED_CACHED, CACHED),
    _row("cached.vs_caio", AWAITED_LISTED, *CAIO),
    _row("cached.vs_aiofiles", AWAITED_LISTED, AIOFILES),
    _row("cached.vs_thread_pool", CACHED, _pool("cached")),
    _row("fallback.cached.vs_ring", FALLBACK_CACHED, CACHED),
    _row("threads2.vs_shared_ring", RING_EACH, SHARED_RING),
]
