"""Which form is meant by Content-Type, and which one is wanted by Accept."""

from __future__ import annotations

import pytest

from forebay.gateway.media import BYTES, JSON, MSGPACK, NPY, body_form, choose
from forebay.gateway.problems import Problem

OFFERS = [JSON, MSGPACK, BYTES, NPY]

CHOSEN = [
    (None, JSON),
    ("", JSON),
    ("*/*", JSON),
    ("application/*", JSON),
    ("application/json", JSON),
    ("APPLICATION/JSON; charset=utf-8", JSON),
    ("application/msgpack", MSGPACK),
    ("application/x-npy, */*", NPY),
    ("application/json;q=0.5, application/msgpack", MSGPACK),
    ("application/json;q=0.5, application/msgpack;q=0.4", JSON),
    ("application/json;q=0, */*", MSGPACK),
    ("application/json;q=0, application/*;q=0.1", MSGPACK),
    ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
    ("application/octet-stream;q=0.2, text/*", BYTES),
    ("application/json;q=x, application/x-npy;q=0.1", NPY),
    ("application/msgpack;q=1.5, application/json;q=0.1", JSON),
    (", ,application/x-npy", NPY),
]


@pytest.mark.parametrize(("accept", "form"), CHOSEN)
def test_the_highest_weight_wins_then_the_more_exact_range(accept: str | None, form: str):
    """A client gets what it likes best of what there is (RFC 9110, section 12.5.1)."""
    assert choose(accept, OFFERS) == form


@pytest.mark.parametrize(
    "accept", ["image/png", "text/*", "*/*;q=0", "nothing", "application/json;q=0"]
)
def test_nothing_acceptable_names_what_there_is(accept: str):
    """The next request can name one of them."""
    with pytest.raises(Problem) as caught:
        choose(accept, [JSON])
    assert (caught.value.status, caught.value.code) == (406, "not_acceptable")
    assert (caught.value.object, caught.value.limit) == ("Accept", JSON)


BODIES = [
    (None, JSON),
    ("", JSON),
    ("application/json", JSON),
    ("application/json; charset=UTF-8", JSON),
    ('Application/JSON;charset="utf-8"', JSON),
    ("application/msgpack", MSGPACK),
]


@pytest.mark.parametrize(("content_type", "form"), BODIES)
def test_a_body_is_json_or_msgpack(content_type: str | None, form: str):
    """What says nothing is JSON."""
    assert body_form(content_type) == form


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1"],
)
def test_another_body_is_refused_with_what_is_read(content_type: str):
    """A form of a web page is no JSON, whatever is in it."""
    with pytest.raises(Problem) as caught:
        body_form(content_type)
    assert (caught.value.status, caught.value.code) == (415, "media_type")
    assert caught.value.headers == [(b"accept-post", b"application/json, application/msgpack")]
