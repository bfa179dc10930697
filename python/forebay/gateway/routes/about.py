"""What is known of the server and of the gateway itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forebay.errors import Error
from forebay.gateway.routes.waiting import one_value

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange

__all__ = [
    "health",
    "info",
    "login",
    "manifest",
    "metrics",
    "openapi",
    "readiness",
    "schedules",
    "services",
    "workers",
]


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


async def login(context: Context, exchange: Exchange) -> None:
    """`GET /login`: a link of `forebay serve` sets the cookie of a browser.

    HEAD does not use it: so ask programs that look at links which they have found in a text.
    """
    key = "" if exchange.method == "HEAD" else one_value(exchange.query(), "key") or ""
    headers = context.access.enter(exchange.scope["headers"], key)
    await exchange.answer(303, b"", [*headers, (b"location", b"/v1/info")])


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
