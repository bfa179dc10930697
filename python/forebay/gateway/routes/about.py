"""What is known of the server and of the gateway itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from forebay.errors import Error
from forebay.gateway.http.exchange import JSON
from forebay.gateway.routes.reads import number_of

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange

__all__ = [
    "health",
    "info",
    "manifest",
    "metrics",
    "openapi",
    "overview",
    "readiness",
    "schedules",
    "services",
    "workers",
]

SINCE_MAX: Final = 2**53
"""The largest whole number that a page in JavaScript writes as such."""


async def health(context: Context, exchange: Exchange) -> None:
    """`GET /healthz`: the gateway answers."""
    await exchange.json({"healthy": True})


async def readiness(context: Context, exchange: Exchange) -> None:
    """`GET /readyz`: whether a submission would be taken and run."""
    try:
        ready = _is_ready(await context.info.get())
    except Error:
        ready = False
    await exchange.json({"ready": ready}, 200 if ready else 503)


async def openapi(context: Context, exchange: Exchange) -> None:
    """`GET /openapi.json`."""
    from forebay.gateway.openapi.describe import (
        describe,
    )  # its schemas take memory that few gateways need

    described = describe(await context.manifest(), context.url)
    await exchange.answer(200, described, [(b"content-type", b"application/json")])


async def metrics(context: Context, exchange: Exchange) -> None:
    """`GET /metrics`: of the server and of the gateway."""
    from forebay.gateway.metrics import OPENMETRICS_TYPE, TEXT_TYPE, render, wants_openmetrics

    told = await context.server.ask("metrics")
    context.metrics.connections = context.state.census.total
    merged = {kind: [*told.get(kind, ()), *own] for kind, own in context.metrics.figures().items()}
    openmetrics = wants_openmetrics((exchange.header(b"accept") or "").encode("latin-1"))
    kind = OPENMETRICS_TYPE if openmetrics else TEXT_TYPE
    text = render(merged, openmetrics=openmetrics)
    await exchange.answer(200, text, [(b"content-type", kind)])


async def info(context: Context, exchange: Exchange) -> None:
    """`GET /v1/info`."""
    await exchange.json(await context.server.ask("info"))


async def overview(context: Context, exchange: Exchange) -> None:
    """`GET /v1/overview`: the figures of the dashboard, now and in the last hour."""
    since = number_of(exchange.query(), "since", 0, SINCE_MAX)
    body = await context.overview.body(since, exchange.holder)
    await exchange.answer(200, body, (JSON, (b"cache-control", b"no-store")))


async def manifest(context: Context, exchange: Exchange) -> None:
    """`GET /v1/manifest`."""
    await exchange.json(await context.manifest())


async def workers(context: Context, exchange: Exchange) -> None:
    """`GET /v1/workers`."""
    await exchange.json(await context.server.ask("workers"))


async def services(context: Context, exchange: Exchange) -> None:
    """`GET /v1/services`."""
    await exchange.json(await context.server.ask("services"))


async def schedules(context: Context, exchange: Exchange) -> None:
    """`GET /v1/schedules`."""
    await exchange.json(await context.server.ask("schedules"))


def _is_ready(info: Mapping[str, Any]) -> bool:
    """Whether nothing is in the way: no code to run, a cordon, a store that does not write."""
    figures = info.get("figures") or {}
    stuck = figures.get("held") or figures.get("store_kept") or figures.get("cordon")
    return not (info.get("draining") or info.get("fault") or stuck)
