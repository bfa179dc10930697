"""Metrics of a server and its gateway, as a scraper reads them."""

from __future__ import annotations

from forebay.gateway.metrics.text import (
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    render,
    wants_openmetrics,
)

__all__ = ["OPENMETRICS_TYPE", "TEXT_TYPE", "render", "wants_openmetrics"]
