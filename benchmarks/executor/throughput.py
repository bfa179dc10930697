"""No-op requests from submit to result: rate, and CPU of the whole process tree.

Everyone has two workers and 1,024 requests in flight, submitted one by one through the system's
ordinary API, and every result is taken. Ours is durable (SQLite, each commit on the disk); Huey
writes SQLite without fsync, Celery's Redis persists nothing, DBOS is durable as ours is, and the
others keep everything in memory.
"""

from __future__ import annotations

from benchmarks.claim import OWN, Claim, Contestant, Option

WORKERS = 2
IN_FLIGHT = 1024
WARM_UP = 500


def _contestant(
    name: str, function: str, environment: str, full: int, quick: int, **more: Option
) -> Contestant:
    options: dict[str, Option] = {
        "workers": WORKERS,
        "requests": full,
        "in_flight": IN_FLIGHT,
        "warm_up": WARM_UP,
        **more,
    }
    return Contestant(name, function, environment, options, {"requests": quick})


FOREBAY = _contestant("forebay, FULL", "benchmarks.executor.forebay:durable", OWN, 80_000, 30_000)
FOREBAY_NORMAL = _contestant(
    "forebay, NORMAL",
    "benchmarks.executor.forebay:durable",
    OWN,
    80_000,
    30_000,
    synchronous="normal",
)
PROCESS_POOL = _contestant(
    "ProcessPoolExecutor", "benchmarks.executor.peers.pools:process_pool", "queues", 30_000, 12_000
)
LOKY = _contestant("loky", "benchmarks.executor.peers.pools:loky", "queues", 30_000, 12_000)
HUEY = _contestant(
    "Huey, no fsync", "benchmarks.executor.peers.huey:without_fsync", "queues", 15_000, 6_000
)
CELERY = _contestant(
    "Celery, Redis", "benchmarks.executor.peers.celery:celery", "queues", 5_000, 2_500
)
RAY = _contestant("Ray tasks", "benchmarks.executor.peers.clusters:ray", "main", 12_000, 5_000)
DASK = _contestant("Dask futures", "benchmarks.executor.peers.clusters:dask", "main", 5_000, 2_500)

# A few a second: a warm-up of 500 would take longer than all other rounds together.
DBOS = _contestant(
    "DBOS, SQLite", "benchmarks.executor.peers.dbos:dbos", "dbos", 600, 200, workers=0, warm_up=20
)
DBOS_TWO = _contestant(
    "DBOS, SQLite, two at once", "benchmarks.executor.peers.dbos:dbos", "dbos", 600, 200, warm_up=20
)
DBOS_DEFAULT = _contestant(
    "DBOS, SQLite, polls by default",
    *("benchmarks.executor.peers.dbos:dbos", "dbos", 600, 200),
    workers=0,
    warm_up=20,
    polls="default",
)

RATE = ("no-op/rate", "1/s")
CPU = ("no-op/cpu", "us")

CLAIMS = [
    *(
        Claim(f"executor.throughput.vs_{name}", FOREBAY, peer, *RATE, higher_is_better=True)
        for name, peer in {
            "process_pool": PROCESS_POOL,
            "loky": LOKY,
            "huey": HUEY,
            "celery": CELERY,
            "ray": RAY,
            "dask": DASK,
        }.items()
    ),
    Claim(
        "executor.throughput.vs_dbos",
        FOREBAY,
        DBOS,
        *RATE,
        higher_is_better=True,
        variants=(DBOS_TWO,),
        note="it polls each millisecond; as often as it does by default: the row below",
    ),
    Claim(
        "executor.throughput.vs_dbos_default", FOREBAY, DBOS_DEFAULT, *RATE, higher_is_better=True
    ),
    Claim("executor.cpu.vs_process_pool", FOREBAY, PROCESS_POOL, *CPU),
    Claim("executor.cpu.vs_celery", FOREBAY, CELERY, *CPU),
    Claim("executor.durable.full_vs_normal", FOREBAY, FOREBAY_NORMAL, *RATE, higher_is_better=True),
]
