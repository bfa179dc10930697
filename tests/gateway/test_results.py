"""Results in the forms that clients accept."""

from __future__ import annotations

import base64
import datetime
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import msgpack

from forebay.executor.wire import parts
from forebay.executor.wire.codec import decode, encode
from forebay.gateway import amount, results
from forebay.gateway.media import BYTES, JSON, MSGPACK, NPY
from forebay.gateway.problems import Problem
from forebay.gateway.results import Result, result_out
from tests.gateway.forms_app import as_json, same
from tests.gateway.test_forms import arrays, blobs, plain_values
from tests.mutation import drive

values = st.recursive(
    plain_values | blobs | arrays,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)

LARGE = np.arange(20_000.0).reshape(100, 200)
OTHER = np.arange(50_000, dtype="<u2")


def beside(value: Any) -> bytes:
    """A value as it lies in a file, with its large arrays beside it."""
    return b"".join(parts.Encoder().encode(value))


def whole(result: Result) -> bytes:
    assert result.length == sum(map(len, result.parts))
    return b"".join(result.parts)


@settings(max_examples=60, deadline=None)
@given(values)
def test_json_has_the_forms_of_arguments(value: Any):
    """What a result is in JSON can be sent as an argument."""
    result = result_out(encode(value))
    assert result.media_type == JSON
    assert json.loads(whole(result)) == as_json(value)


@settings(max_examples=50, deadline=None)
@given(values)
def test_msgpack_is_the_result_itself(value: Any):
    """Nothing is made anew."""
    blob = encode(value)
    result = result_out(blob, MSGPACK)
    assert same(decode(whole(result)), value)
    assert len(result.parts) == 1
    assert result.parts[0].obj is blob  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "value",
    [
        LARGE,
        [LARGE, OTHER],
        {"a": LARGE, "b": [OTHER, np.arange(3)], "c": b"x", "d": [LARGE]},
        {"at": datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC), "a": LARGE},
    ],
)
def test_arrays_beside_a_result_come_back_into_it(value: Any):
    """A client needs to know one form of arrays alone."""
    blob = beside(value)
    assert blob[:1] == b"\xc1"
    assert same(decode(whole(result_out(blob, MSGPACK))), value)
    if not isinstance(value, dict) or "at" not in value:
        assert json.loads(whole(result_out(blob))) == as_json(value)


def test_the_contents_of_large_arrays_are_views():
    """A result in a mapped file is sent from it."""
    blob = beside({"a": LARGE, "b": OTHER})
    result = result_out(memoryview(blob), MSGPACK)
    views = [part for part in result.parts if isinstance(part, memoryview)]
    assert [view.nbytes for view in views] == [LARGE.nbytes, OTHER.nbytes]
    assert all(view.obj is blob for view in views)


@pytest.mark.parametrize("make", [encode, beside])
@pytest.mark.parametrize(
    "value", [LARGE, LARGE[:0], np.float32([1, 2]), np.array(5), np.array(["a", "bc"])]
)
def test_an_array_is_a_file_of_numpy(make: Any, value: Any):
    """`numpy.load` reads it without knowing of us."""
    result = result_out(make(value), NPY)
    assert (result.media_type, result.ranged) == (NPY, True)
    assert same(np.load(io.BytesIO(whole(result))), value)
    bare = result_out(make(value), BYTES)
    assert whole(bare) == value.tobytes()
    assert bare.ranged


def test_bytes_are_bytes():
    """A picture that a request returns can be shown by a browser."""
    blob = encode(b"picture")
    result = result_out(blob, BYTES)
    assert (result.media_type, whole(result), result.ranged) == (BYTES, b"picture", True)
    assert json.loads(whole(result_out(blob))) == base64.b64encode(b"picture").decode()


def test_times_are_rfc_3339():
    """Any language reads them."""
    at = datetime.datetime(2026, 11, 27, 20, 55, tzinfo=datetime.UTC)
    assert json.loads(whole(result_out(encode({"at": at})))) == {"at": "2026-11-27T20:55:00Z"}


WITHOUT_JSON = [
    {(1, 2): 3},
    {None: 1},
    msgpack.Ext(9, b"x"),
    [msgpack.Ext(1, b"x")],
    {"a": msgpack.Ext(1, msgpack.encode(("<f8", (3,), b"")))},
]


@pytest.mark.parametrize("value", WITHOUT_JSON)
def test_a_result_that_json_has_no_form_for_is_msgpack(value: Any):
    """Who takes anything gets it, and who takes JSON alone is told why not."""
    blob = encode(value)
    assert result_out(blob).media_type == MSGPACK
    assert whole(result_out(blob)) == blob
    with pytest.raises(Problem) as caught:
        result_out(blob, JSON)
    assert (caught.value.status, caught.value.code) == (406, "not_acceptable")
    assert caught.value.limit == MSGPACK


def test_a_long_result_has_no_form_in_json(monkeypatch: pytest.MonkeyPatch):
    """Its text would be made in the memory of the gateway."""
    monkeypatch.setattr(results, "JSON_RESULT_BYTES_MAX", 100)
    blob = encode(b"x" * 200)
    assert result_out(blob).media_type == MSGPACK
    with pytest.raises(Problem, match="json_result_bytes_max"):
        result_out(blob, JSON)


def test_a_result_of_very_many_values_has_no_form_in_json(monkeypatch: pytest.MonkeyPatch):
    """A byte of MessagePack can be a map, which takes 64 in memory."""
    monkeypatch.setattr(amount, "VALUES_MAX", 100)
    for many in ([{}] * 101, [[[0] * 60, [1] * 60]], {str(n): n for n in range(60)}):
        assert result_out(encode(many)).media_type == MSGPACK
        with pytest.raises(Problem, match="values_max"):
            result_out(encode(many), JSON)
    for few in ([{}] * 100, ["x" * 500], [b"y" * 500], np.arange(500)):
        assert result_out(encode(few)).media_type == JSON


FORMS_OF = [
    (encode({"a": 1}), [JSON, MSGPACK]),
    (encode(b""), [JSON, MSGPACK, BYTES]),
    (encode(np.arange(2)), [JSON, MSGPACK, BYTES, NPY]),
    (beside(LARGE), [JSON, MSGPACK, BYTES, NPY]),
]


@pytest.mark.parametrize(("blob", "forms"), FORMS_OF)
def test_what_nobody_has_is_refused_with_what_there_is(blob: bytes, forms: list[str]):
    """The next request can name one of them."""
    for form in forms:
        assert result_out(blob, form).media_type == form
    with pytest.raises(Problem) as caught:
        result_out(blob, "image/png")
    assert caught.value.status == 406
    assert caught.value.limit == ", ".join(forms)


def test_a_mutated_result_is_a_problem_and_no_fault():
    """A file that was damaged on disk fails its reader alone."""
    known = [(beside({"a": LARGE[:90], "b": b"x"}), []), (encode([np.arange(3), b"x"]), [])]

    def read(head: bytes, _: Any) -> Any:
        try:
            return [result_out(head, form).parts for form in (JSON, MSGPACK, "*/*;q=0.1")]
        except Problem as problem:
            raise ValueError(problem.message) from None

    drive(read, known, decoded_each=1000)
