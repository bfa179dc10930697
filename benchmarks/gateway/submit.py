"""Submitting over HTTP: one POST with a small JSON body, over 64 keep-alive connections and one.

Ours answers once the request is on the disk, and two workers run the requests meanwhile. FastAPI's
handler does nothing; the other one hands a task to Celery, whose Redis persists nothing and whose
two workers run it. Each HTTP server is one process on httptools and uvloop.
"""

from __future__ import annotations

from benchmarks.claim import OWN, Claim, Contestant, Option
from benchmarks.gateway import wrk
from benchmarks.stopwatch import Figures

WORKERS = 2
RATE = (f"{wrk.CONNECTIONS} connections/rate", "1/s")


def forebay(workers: int, seconds: int) -> Figures:
    """Durable, with the token of a user."""
    from benchmarks.gateway.forebay import served

    with served(workers) as address:
        return wrk.post(address, "/v1/requests/noop", seconds=seconds)


def fastapi(seconds: int) -> Figures:
    """A handler that checks the body and does nothing."""
    from benchmarks.gateway.peers.uvicorn import served

    with served("benchmarks.gateway.peers.fastapi_app:app") as address:
        return wrk.post(address, "/noop", seconds=seconds)


def celery(workers: int, seconds: int, path: str) -> Figures:
    """A handler that calls `delay`: on the loop, which it blocks, or in FastAPI's threads."""
    from benchmarks.executor.peers.celery import redis_running, worker_running
    from benchmarks.gateway.peers.uvicorn import served

    with (
        redis_running(),
        worker_running(workers),
        served("benchmarks.gateway.peers.celery_http_app:app") as address,
    ):
        return wrk.post(address, path, seconds=seconds)


def _contestant(name: str, function: str, environment: str, **more: Option) -> Contestant:
    options: dict[str, Option] = {"seconds": 8, **more}
    return Contestant(
        name, f"benchmarks.gateway.submit:{function}", environment, options, {"seconds": 4}
    )


FOREBAY = _contestant("forebay, durable", "forebay", OWN, workers=WORKERS)
FASTAPI = _contestant("FastAPI, empty handler", "fastapi", "http")
CELERY_ON_LOOP = _contestant(
    "FastAPI, Celery on the loop", "celery", "http", workers=WORKERS, path="/on_loop"
)
CELERY_IN_THREADS = _contestant(
    "FastAPI, Celery in threads", "celery", "http", workers=WORKERS, path="/in_threads"
)

CLAIMS = [
    Claim("gateway.submit.vs_fastapi", FOREBAY, FASTAPI, *RATE, higher_is_better=True),
    Claim(
        "gateway.submit.vs_celery_http",
        FOREBAY,
        CELERY_ON_LOOP,
        *RATE,
        higher_is_better=True,
        variants=(CELERY_IN_THREADS,),
    ),
]
