"""Rates of submissions: what is taken at once, and when one may come again."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.gateway.problems import Problem
from forebay.gateway.routes.rates import Rates
from tests.executor.serving import until
from tests.gateway.http.http_serving import APP, HttpServing


def taken(rates: Rates, name: str, count: int) -> int:
    """How many of `count` submissions are taken; the others are told when to come again."""
    refusals = []
    for _ in range(count):
        try:
            rates.take(name)
        except Problem as problem:
            refusals.append(problem)
    assert all(one.status == 429 for one in refusals)
    assert all(int(dict(one.headers)[b"retry-after"]) >= 1 for one in refusals)
    return count - len(refusals)


def test_a_rate_holds_over_time() -> None:
    """A burst takes a second's worth, and after that as many as the rate."""
    now = [0.0]
    rates = Rates({"ci": 10.0, "slow": 0.1}, timer=lambda: now[0])
    assert taken(rates, "ci", 50) == 10
    now[0] += 0.35
    assert taken(rates, "ci", 50) == 3
    now[0] += 100
    assert taken(rates, "ci", 50) == 10
    assert taken(rates, "slow", 5) == 1
    now[0] += 9
    assert taken(rates, "slow", 5) == 0
    now[0] += 1.5
    assert taken(rates, "slow", 5) == 1
    assert taken(rates, "anybody", 100) == 100


def test_a_gateway_holds_the_rate_that_it_was_given(tmp_path: Path) -> None:
    """The others are not limited by it, and a batch counts each."""
    with HttpServing(tmp_path, APP, "--rate", "local=3/s") as serving:
        batch = {"requests": [{"name": "add", "arguments": {"a": 1}}] * 9}
        told = serving.call("POST", "/v1/batch", batch).json["requests"]
        assert 3 <= sum("id" in one for one in told) <= 4
        answer = serving.call("POST", "/v1/requests/add", {"a": 1})
        if answer.status != 202:
            assert (answer.status, answer.json["object"]) == (429, "rate")
            assert answer.headers["retry-after"] == "1"
        until(lambda: serving.call("POST", "/v1/requests/add", {"a": 1}).status == 202)


@pytest.mark.parametrize("text", ["local", "local=", "local=0", "=3/s", "local=inf/s"])
def test_a_wrong_rate_is_refused(text: str) -> None:
    """A mistyped limit is no missing limit."""
    from forebay.cli.serve_http import _rate
    from forebay.errors import ConfigError

    with pytest.raises(ConfigError, match="--rate"):
        _rate(text)
