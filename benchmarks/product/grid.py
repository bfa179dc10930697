"""What is compared: a column for each figure, a contestant for each system that has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.pool import fresh
from benchmarks.rpc import call

FOREBAY, RAY = "forebay", "Ray"
ALONE, NAMES = "asyncio alone", "forebay, its names"
SYSTEMS = (FOREBAY, RAY, "xoscar", "RPyC", "Dask", "Celery", NAMES, ALONE)
SERVICES, SERVICES_QUICK = 20, 8
CALLS, CALLS_QUICK = 2_000, 500
ARRAYS, ARRAYS_QUICK = 40, 15
STARTS, STARTS_QUICK = 60, 25
PEER_STARTS, PEER_STARTS_QUICK = 15, 6


@dataclass(frozen=True)
class Column:
    """One figure of all systems.

    Attributes:
        claim: the row that it is, ours against `peer`.
        head: what the table shows above it.
        figure: key of the value in what the contestants return.
        unit: of that value.
        peer: the system that the claim compares with; the others are shown beside it.
        contestants: by system, ours and the peer among them.
        note: what a reader of the row must know.
    """

    claim: str
    head: str
    figure: str
    unit: str
    peer: str
    contestants: Mapping[str, Contestant]
    note: str = ""

    def row(self) -> Claim:
        """The claim, with the others beside it."""
        ours, peer = self.contestants[FOREBAY], self.contestants[self.peer]
        others = [one for one in self.contestants.values() if one not in (ours, peer)]
        return Claim(
            *(self.claim, ours, peer, self.figure, self.unit), note=self.note, beside=tuple(others)
        )


def _fresh(system: str, function: str) -> Contestant:
    options = {"services": SERVICES, "warm_up": 1}
    quick = {"services": SERVICES_QUICK}
    return Contestant(f"{system}, fresh process", function, "main", options, quick)


def _calls(system: str, function: str, environment: str) -> Contestant:
    options, quick = {"calls": CALLS, "warm_up": 50}, {"calls": CALLS_QUICK}
    return Contestant(f"{system} call", function, environment, options, quick)


def _array(system: str, function: str, environment: str) -> Contestant:
    options, quick = {"calls": ARRAYS, "warm_up": 5}, {"calls": ARRAYS_QUICK}
    return Contestant(f"{system} 10 MB", function, environment, options, quick)


def _idle(system: str, function: str, environment: str) -> Contestant:
    return Contestant(f"{system} at rest", function, environment)


def _imported(what: str, modules: str, environment: str = OWN) -> Contestant:
    full, quick = (STARTS, STARTS_QUICK) if environment == OWN else (PEER_STARTS, PEER_STARTS_QUICK)
    return Contestant(
        f"import of {what}",
        "benchmarks.product.imports:imported",
        environment,
        {"modules": modules, "starts": full, "warm_up": 3},
        {"starts": quick},
    )


DASK, CELERY = "benchmarks.product.peers.dask", "benchmarks.product.peers.celery"

COLUMNS = (
    Column(
        *("product.fresh_service.vs_ray", "fresh process, ms", "p50", "ms", RAY),
        {
            FOREBAY: fresh.FOREBAY,
            RAY: fresh.RAY,
            "xoscar": _fresh("xoscar", "benchmarks.product.fresh:xoscar_sub_pools"),
            "RPyC": _fresh("RPyC", "benchmarks.product.fresh:rpyc_servers"),
            "Dask": _fresh("Dask", f"{DASK}:fresh"),
        },
    ),
    Column(
        *("product.call.vs_ray", "call, us", "mean", "us", RAY),
        {
            FOREBAY: call.FOREBAY_CALLS,
            RAY: call.RAY_CALLS,
            "xoscar": call.XOSCAR_CALLS,
            "RPyC": call.RPYC_CALLS,
            "Dask": _calls("Dask", f"{DASK}:calls", "main"),
            "Celery": _calls("Celery", f"{CELERY}:calls", "queues"),
        },
    ),
    Column(
        *("product.array_10mb.vs_ray", "10 MB, ms", "mean", "ms", RAY),
        {
            FOREBAY: call.FOREBAY_ARRAY,
            RAY: call.RAY_ARRAY,
            "xoscar": call.XOSCAR_ARRAY,
            "RPyC": call.RPYC_ARRAY,
            "Dask": _array("Dask", f"{DASK}:array", "main"),
            "Celery": _array("Celery", f"{CELERY}:array", "queues"),
        },
    ),
    Column(
        *("product.idle_memory.vs_ray", "at rest, MB", "memory_mb", "MB", RAY),
        {
            FOREBAY: _idle("forebay", "benchmarks.product.idle:forebay", OWN),
            RAY: _idle("Ray", "benchmarks.product.idle:ray", "main"),
            "xoscar": _idle("xoscar", "benchmarks.product.idle:xoscar", "main"),
            "RPyC": _idle("RPyC", "benchmarks.product.idle:rpyc", "main"),
            "Dask": _idle("Dask", f"{DASK}:idle", "main"),
            "Celery": _idle("Celery", f"{CELERY}:idle", "queues"),
        },
    ),
    Column(
        *("product.import.vs_asyncio", "import, ms", "p50", "ms", ALONE),
        {
            FOREBAY: _imported("asyncio and forebay", "forebay"),
            ALONE: _imported("asyncio alone", ""),
            NAMES: _imported("asyncio and forebay's names", "forebay; from forebay import *"),
            RAY: _imported("asyncio and Ray", "ray", "main"),
            "xoscar": _imported("asyncio and xoscar", "xoscar", "main"),
            "RPyC": _imported("asyncio and RPyC", "rpyc", "main"),
            "Dask": _imported("asyncio and Dask", "distributed", "main"),
            "Celery": _imported("asyncio and Celery", "celery", "queues"),
        },
        note="forebay loads its names on first use; all of them are a line of the table",
    ),
)
