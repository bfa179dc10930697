"""What the gateway counts of itself."""

from __future__ import annotations

from forebay.gateway.metrics.answered import BOUNDS, HttpMetrics


def test_answers_are_counted_by_method_and_status() -> None:
    """Nobody sees that clients are refused."""
    metrics = HttpMetrics()
    for status in (202, 202, 429):
        metrics.answered("POST", status, 0.002)
    assert metrics.figures()["counters"] == [
        ("forebay_gateway_requests_total", {"method": "POST", "status": "202"}, 2),
        ("forebay_gateway_requests_total", {"method": "POST", "status": "429"}, 1),
    ]


def test_methods_that_clients_make_up_count_as_one() -> None:
    """A client fills the memory of the gateway with names."""
    metrics = HttpMetrics()
    for number in range(1000):
        metrics.answered(f"M{number}", 405, 0.001)
    ((_, labels, count),) = metrics.figures()["counters"]
    assert (labels["method"], count) == ("other", 1000)


def test_durations_are_counted_up_to_each_bound() -> None:
    """A slow answer is counted as a fast one, or not at all."""
    metrics = HttpMetrics()
    for seconds in (0.0, 0.0003, 0.0004, 0.5, 1000.0):
        metrics.answered("GET", 200, seconds)
    ((_, _, buckets, total, count),) = metrics.figures()["histograms"]
    assert dict(buckets)[0.0003] == 2
    assert dict(buckets)[0.001] == 3
    assert dict(buckets)[1.0] == 4
    assert dict(buckets)[BOUNDS[-1]] == 4
    assert count == 5
    assert total == 1000.5007
