"""All routes, those that are asked for most first."""

from __future__ import annotations

from typing import Final

from forebay.gateway.asgi.table import Route, Table
from forebay.gateway.routes import (
    about,
    admin,
    following,
    items,
    pages,
    reads,
    results,
    sessions,
    submit,
)
from forebay.gateway.tokens import Role

__all__ = ["ROUTES", "TABLE"]

ROUTES: Final = (
    Route("POST", "/v1/requests/{}", Role.SUBMIT, submit.submit),
    Route("GET", "/v1/requests/{}", Role.READ, reads.status),
    Route("GET", "/v1/requests/{}/result", Role.READ, results.result),
    Route("GET", "/healthz", None, about.health),
    Route("GET", "/readyz", None, about.readiness),
    Route("POST", "/v1/requests", Role.SUBMIT, submit.submit_named),
    Route("POST", "/v1/batch", Role.SUBMIT, submit.submit_many),
    Route("GET", "/v1/requests", Role.READ, reads.listing),
    Route("GET", "/v1/requests/{}/show", Role.READ, reads.show),
    Route("GET", "/v1/requests/{}/why", Role.READ, reads.why),
    Route("GET", "/v1/requests/{}/arguments", Role.READ, reads.arguments),
    Route("GET", "/v1/requests/{}/logs", Role.READ, following.logs),
    Route("GET", "/v1/requests/{}/items", Role.READ, items.items),
    Route("GET", "/v1/requests/{}/events", Role.READ, following.events),
    Route("POST", "/v1/requests/{}/cancel", Role.SUBMIT, admin.cancel),
    Route("POST", "/v1/requests/{}/retry", Role.SUBMIT, admin.retry),
    Route("GET", "/v1/events", Role.READ, following.feed),
    Route("GET", "/v1/overview", Role.READ, about.overview),
    Route("GET", "/v1/workers", Role.READ, about.workers),
    Route("GET", "/v1/services", Role.READ, about.services),
    Route("GET", "/v1/schedules", Role.READ, about.schedules),
    Route("GET", "/v1/manifest", Role.READ, about.manifest),
    Route("GET", "/v1/info", Role.READ, about.info),
    Route("POST", "/v1/schedules/{}/pause", Role.ADMIN, admin.pause),
    Route("POST", "/v1/schedules/{}/resume", Role.ADMIN, admin.resume),
    Route("POST", "/v1/prune", Role.ADMIN, admin.prune),
    Route("POST", "/v1/cordon", Role.ADMIN, admin.cordon),
    Route("POST", "/v1/reload", Role.ADMIN, admin.reload),
    Route("POST", "/v1/stop", Role.ADMIN, admin.stop),
    Route("GET", "/openapi.json", Role.READ, about.openapi),
    Route("GET", "/metrics", Role.READ, about.metrics),
    Route("GET", "/login", None, sessions.by_link),
    Route("POST", "/login", None, sessions.by_token),
    Route("POST", "/logout", Role.READ, sessions.leave),
    Route("GET", "/", None, pages.home),
    Route("GET", "/ui", None, pages.home),
    Route("GET", "/ui/", None, pages.index),
    Route("GET", "/ui/{}", None, pages.file),
)

TABLE: Final = Table(ROUTES)
