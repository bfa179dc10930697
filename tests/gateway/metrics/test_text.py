"""Metrics as text, read by the parsers of prometheus_client."""

from __future__ import annotations

import math
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from forebay.gateway.metrics import render, wants_openmetrics
from forebay.gateway.metrics.families import FAMILIES

METRICS: dict[str, list[Any]] = {
    "counters": [
        ["forebay_requests_submitted_total", {"name": "tune"}, 5],
        ["forebay_requests_finished_total", {"name": "tune", "outcome": "succeeded"}, 2**40],
        ["forebay_requests_submitted_total", {"name": "spread"}, 1],
    ],
    "gauges": [
        ["forebay_memory_limit_bytes", {}, 750_000_000],
        ["forebay_requests_oldest_queued_seconds", {"lane": "short"}, 0.25],
    ],
    "histograms": [
        ["forebay_store_commit_seconds", {}, [[0.001, 3], [1, 4]], 0.0625, 5],
        ["forebay_request_run_seconds", {"name": "tune"}, [[0.5, 1], [math.inf, 2]], 9.5, 2],
    ],
}

FORMATS = [(False, parse_text), (True, parse_openmetrics)]


def samples(
    metrics: dict[str, list[Any]], openmetrics: bool, parse: Any
) -> dict[tuple[str, ...], float]:
    text = render(metrics, openmetrics=openmetrics).decode()
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in parse(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(("openmetrics", "parse"), FORMATS)
def test_every_number_is_read_as_it_was(openmetrics: bool, parse: Any) -> None:
    """A scraper sees other numbers than the server counted."""
    read = samples(METRICS, openmetrics, parse)
    assert read == {
        ("forebay_requests_submitted_total", "name=tune"): 5,
        ("forebay_requests_submitted_total", "name=spread"): 1,
        ("forebay_requests_finished_total", "name=tune", "outcome=succeeded"): 2**40,
        ("forebay_memory_limit_bytes",): 750_000_000,
        ("forebay_requests_oldest_queued_seconds", "lane=short"): 0.25,
        ("forebay_store_commit_seconds_bucket", "le=0.001"): 3,
        ("forebay_store_commit_seconds_bucket", "le=1.0"): 4,
        ("forebay_store_commit_seconds_bucket", "le=+Inf"): 5,
        ("forebay_store_commit_seconds_sum",): 0.0625,
        ("forebay_store_commit_seconds_count",): 5,
        ("forebay_request_run_seconds_bucket", "le=0.5", "name=tune"): 1,
        ("forebay_request_run_seconds_bucket", "le=+Inf", "name=tune"): 2,
        ("forebay_request_run_seconds_sum", "name=tune"): 9.5,
        ("forebay_request_run_seconds_count", "name=tune"): 2,
    }


@pytest.mark.parametrize(("openmetrics", "parse"), FORMATS)
def test_a_metric_is_declared_once_with_its_help_and_type(openmetrics: bool, parse: Any) -> None:
    """A scraper refuses a page on which a metric is declared twice."""
    families = list(parse(render(METRICS, openmetrics=openmetrics).decode()))
    assert [(family.name, family.type) for family in families] == [
        ("forebay_requests_submitted", "counter"),
        ("forebay_requests_finished", "counter"),
        ("forebay_memory_limit_bytes", "gauge"),
        ("forebay_requests_oldest_queued_seconds", "gauge"),
        ("forebay_store_commit_seconds", "histogram"),
        ("forebay_request_run_seconds", "histogram"),
    ]
    assert families[0].documentation == FAMILIES["forebay_requests_submitted_total"].help


@pytest.mark.parametrize(("openmetrics", "parse"), FORMATS)
@pytest.mark.parametrize("value", ['say "hi"', "back\\slash", "two\nlines", "é", "a,b}c{d=e", ""])
def test_any_text_may_be_a_label(openmetrics: bool, parse: Any, value: str) -> None:
    """A request's name breaks the page of all metrics."""
    metrics = {"counters": [["forebay_requests_submitted_total", {"name": value}, 1]]}
    assert samples(metrics, openmetrics, parse) == {
        ("forebay_requests_submitted_total", f"name={value}"): 1
    }


@pytest.mark.parametrize("number", [0, 0.1, 1e-9, 2**63, 1.5e300, math.inf, -math.inf, -3])
@pytest.mark.parametrize(("openmetrics", "parse"), FORMATS)
def test_any_number_may_be_a_gauge(openmetrics: bool, parse: Any, number: float) -> None:
    """A number in a form that the scraper does not know loses the whole page."""
    metrics = {"gauges": [["forebay_memory_limit_bytes", {}, number]]}
    assert samples(metrics, openmetrics, parse) == {("forebay_memory_limit_bytes",): number}


def test_no_number_is_told_as_such() -> None:
    """A figure that is not known yet loses the page."""
    text = render({"gauges": [["forebay_memory_limit_bytes", {}, math.nan]]}).decode()
    ((sample,),) = [family.samples for family in parse_text(text)]
    assert math.isnan(sample.value)


def test_a_metric_of_a_newer_server_is_shown_without_help() -> None:
    """A gateway that is older than its server hides what it does not know."""
    text = render({"gauges": [["forebay_new", {}, 1]]})
    assert text == b"# TYPE forebay_new gauge\nforebay_new 1\n"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (b"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3", True),
        (b"Application/OpenMetrics-Text", True),
        (b"text/plain", False),
        (b"*/*", False),
        (b"", False),
    ],
)
def test_openmetrics_is_given_to_those_who_ask(accept: bytes, wanted: bool) -> None:
    """Somebody with curl gets a form that curl's user did not ask for."""
    assert wants_openmetrics(accept) is wanted
