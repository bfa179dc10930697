"""A body has so many values that the gateway holds as objects, and not more."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from msgspec import msgpack

from forebay.gateway import amount
from forebay.gateway.forms import Forms
from forebay.gateway.media import JSON, MSGPACK
from forebay.gateway.problems import Problem
from tests.gateway.forms_app import manifest

FORMS = Forms(manifest())
MOST = 1000


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amount, "VALUES_MAX", MOST)


def written(value: Any, form: str) -> bytes:
    return json.dumps(value).encode() if form == JSON else msgpack.encode(value)


MANY = [[0] * 3000, [[]] * 3000, [{}] * 3000, [[1] * 40] * 50, {str(n): 0 for n in range(1500)}]


@pytest.mark.parametrize("value", MANY)
@pytest.mark.parametrize("form", [JSON, MSGPACK])
def test_more_values_are_refused_before_they_are_made(value: Any, form: str):
    """64 MiB of empty lists would be gigabytes of them."""
    body = written({"anything": value}, form)
    tracemalloc.start()
    try:
        with pytest.raises(Problem) as caught:
            FORMS.arguments_in("plain", body, form)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (caught.value.status, caught.value.code) == (413, "limit")
    assert (caught.value.object, caught.value.limit) == ("arguments", MOST)
    assert peak < 200 * MOST + 2 * len(body)


@pytest.mark.parametrize("value", [[0] * 900, {"a": ["x" * 5000]}, [[1] * 9] * 90])
@pytest.mark.parametrize("form", [JSON, MSGPACK])
def test_fewer_are_taken(value: Any, form: str):
    """Long texts are one value each."""
    body = written({"anything": value, "name": "x" * 2 * MOST}, form)
    assert msgpack.decode(FORMS.arguments_in("plain", body, form))["anything"] == value


def test_bytes_and_arrays_are_one_value_each():
    """What is large is sent so."""
    content = {"data": bytes(5 * MOST)}
    assert FORMS.arguments_in("raw", msgpack.encode(content), MSGPACK) == msgpack.encode(content)


@pytest.mark.parametrize("depth", [300, 5000])
def test_a_deep_body_is_refused(depth: int):
    """Whatever it holds: nobody can follow it."""
    deep = b"\x81\xa8anything" + b"\x91" * depth + b"\xc0" + bytes(0)
    body = deep + b"\xc0" * 2 * MOST
    with pytest.raises(Problem) as caught:
        FORMS.arguments_in("plain", body, MSGPACK)
    assert caught.value.status in (400, 422)
