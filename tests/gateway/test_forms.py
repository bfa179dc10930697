"""Arguments as clients write them become what the executor's own codec would have sent."""

from __future__ import annotations

import base64
import json
import os
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn
from msgspec import msgpack

from forebay.executor.wire.codec import decode, encode
from forebay.gateway.forms import Forms
from forebay.gateway.media import JSON, MSGPACK
from forebay.gateway.problems import Problem
from tests.gateway.forms_app import as_json, as_maps, manifest, same
from tests.mutation import drive

FORMS = Forms(manifest())

dtypes = hn.scalar_dtypes() | hn.unicode_string_dtypes() | hn.byte_string_dtypes()
arrays = hn.arrays(dtypes.filter(lambda it: it.itemsize > 0), hn.array_shapes(min_side=0))
texts = st.text(max_size=20)
blobs = st.binary(max_size=40)
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False).filter(lambda it: abs(it) != float("inf"))
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)
samples = st.fixed_dictionaries(
    {"label": texts}, optional={"blob": blobs, "image": st.none() | arrays}
)
trees = st.recursive(
    st.fixed_dictionaries({"blob": blobs}),
    lambda inner: st.fixed_dictionaries({"blob": blobs, "children": st.lists(inner, max_size=3)}),
    max_leaves=5,
)
unions = st.one_of(
    st.none(),
    st.fixed_dictionaries({"type": st.just("sound"), "data": blobs}),
    st.fixed_dictionaries({"type": st.just("note"), "data": texts}),
)
steps = st.one_of(
    st.none(),
    st.tuples(st.just("move"), blobs).map(list),
    st.tuples(st.just("say"), texts).map(list),
)
ARGUMENTS = {
    "plain": st.fixed_dictionaries(
        {"count": st.integers(0, 2**32)},
        optional={"name": texts, "weights": st.lists(st.floats(0, 1)), "anything": plain_values},
    ),
    "raw": st.fixed_dictionaries(
        {"data": blobs},
        optional={
            "pieces": st.lists(blobs),
            "by_name": st.dictionaries(texts, blobs),
            "pair": st.tuples(st.integers(0, 9), blobs).map(list),
        },
    ),
    "image": st.fixed_dictionaries(
        {"image": arrays}, optional={"mask": st.none() | arrays, "stack": st.lists(arrays)}
    ),
    "nested": st.fixed_dictionaries(
        {},
        optional={
            "sample": samples,
            "samples": st.lists(samples, max_size=3),
            "tree": trees,
            "what": unions,
            "step": steps,
        },
    ),
}
requests = st.sampled_from(sorted(ARGUMENTS)).flatmap(
    lambda name: st.tuples(st.just(name), ARGUMENTS[name])
)


@settings(max_examples=80, deadline=None)
@given(requests)
def test_json_becomes_what_a_python_client_would_have_sent(request_: tuple[str, Any]):
    """A worker cannot tell whether its arguments came over HTTP."""
    name, arguments = request_
    body = json.dumps(as_json(arguments)).encode()
    assert same(decode(FORMS.arguments_in(name, body)), decode(encode(arguments)))


@settings(max_examples=80, deadline=None)
@given(requests, st.booleans())
def test_msgpack_becomes_what_a_python_client_would_have_sent(
    request_: tuple[str, Any], maps: bool
):
    """Bytes need no base64 there, and an array is an extension or the map of JSON."""
    name, arguments = request_
    body = msgpack.encode(as_maps(arguments)) if maps else encode(arguments)
    assert same(decode(FORMS.arguments_in(name, body, MSGPACK)), decode(encode(arguments)))


def test_msgpack_without_marks_is_passed_on_as_it_is():
    """Nothing is made anew that need not be."""
    body = encode({"count": 1, "anything": {"a": [1, 2.5]}})
    assert FORMS.arguments_in("plain", body, MSGPACK) is body


def test_an_empty_body_is_no_arguments():
    """A request without parameters can be submitted without a body."""
    assert decode(FORMS.arguments_in("plain", b"")) == {}


def test_a_request_that_the_manifest_does_not_have_is_left_to_the_server():
    """The server knows which names are near; and may have been reloaded meanwhile."""
    assert decode(FORMS.arguments_in("other", b'{"a": 1}')) == {"a": 1}


def test_an_escaped_slash_in_base64_is_read():
    """Some languages write every slash of JSON with a backslash."""
    body = json.dumps({"data": "//8="}).replace("/", "\\/").encode()
    assert decode(FORMS.arguments_in("raw", body)) == {"data": b"\xff\xff"}


def array(dtype: Any = "<f8", shape: Any = (1,), data: Any = "AAAAAAAAAAA=") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data": data}


REFUSED = [
    ("image", {"image": 5}, "arguments.image", "an array as"),
    ("image", {"image": "x"}, "arguments.image", "an array as"),
    ("image", {"image": {"dtype": "<f8", "shape": [1]}}, "arguments.image.data", "missing"),
    ("image", {"image": {**array(), "more": 1}}, "arguments.image.more", "no such field"),
    ("image", {"image": array(dtype="|O")}, "arguments.image.dtype", "no objects"),
    ("image", {"image": array(dtype="O8")}, "arguments.image.dtype", "no objects"),
    ("image", {"image": array(dtype="<f3")}, "arguments.image.dtype", "'<f3'"),
    ("image", {"image": array(dtype="i4,i4")}, "arguments.image.dtype", "'i4,i4'"),
    ("image", {"image": array(dtype="<f8\n")}, "arguments.image.dtype", "<f8"),
    ("image", {"image": array(dtype=8)}, "arguments.image.dtype", "expected `str`"),
    ("image", {"image": {**array(), "shape": 1}}, "arguments.image.shape", "expected `array`"),
    ("image", {"image": array(shape=[1.5])}, "arguments.image.shape[0]", "expected `int`"),
    ("image", {"image": array(shape=[1, -1])}, "arguments.image.shape[1]", "-1"),
    ("image", {"image": array(shape=[2**63])}, "arguments.image.shape[0]", f"{2**63}"),
    ("image", {"image": array(shape=[0, 2**62])}, "arguments.image.shape", "bytes"),
    ("image", {"image": array(shape=[1] * 33)}, "arguments.image.shape", "32 dimensions"),
    ("image", {"image": array(shape=[2])}, "arguments.image.data", "16 bytes"),
    ("image", {"image": array(data="AAA")}, "arguments.image.data", "base64"),
    ("image", {"image": array(data=1)}, "arguments.image.data", "base64"),
    ("image", {"image": array(), "mask": array("x")}, "arguments.mask.dtype", "'x'"),
    ("image", {"image": array(), "stack": [array(), 1]}, "arguments.stack[1]", "an array as"),
    ("raw", {"data": 1}, "arguments.data", "base64"),
    ("raw", {"data": "AA"}, "arguments.data", "base64"),
    ("raw", {"data": "AA A="}, "arguments.data", "base64"),
    ("raw", {"data": "AA-_"}, "arguments.data", "base64"),
    ("raw", {"data": "ä"}, "arguments.data", "base64"),
    ("raw", {"data": "", "pieces": ["", "!"]}, "arguments.pieces[1]", "base64"),
    ("raw", {"data": "", "by_name": {"a": 1}}, "arguments.by_name.a", "base64"),
    ("raw", {"data": "", "pair": [1, 2]}, "arguments.pair[1]", "base64"),
    ("nested", {"sample": {"label": "", "blob": 1}}, "arguments.sample.blob", "base64"),
    (
        "nested",
        {"samples": [{"label": "", "image": array("x")}]},
        "arguments.samples[0].image.dtype",
        "'x'",
    ),
    (
        "nested",
        {"tree": {"blob": "", "children": [{"blob": 1}]}},
        "arguments.tree.children[0].blob",
        "base64",
    ),
    ("nested", {"what": {"type": "sound", "data": 1}}, "arguments.what.data", "base64"),
    ("nested", {"step": ["move", 1]}, "arguments.step[1]", "base64"),
    ("plain", {"count": 2**64}, "arguments.count", "64 bits"),
    ("plain", {"count": 1, "anything": {"a": [1, -(2**65)]}}, "arguments.anything.a[1]", "64 bits"),
]


@pytest.mark.parametrize(("name", "arguments", "path", "told"), REFUSED)
def test_a_wrong_form_names_the_field(name: str, arguments: Any, path: str, told: str):
    """Whoever wrote the body finds what is wrong in it."""
    with pytest.raises(Problem, match=r".*") as caught:
        FORMS.arguments_in(name, json.dumps(arguments).encode())
    assert (caught.value.status, caught.value.code) == (422, "invalid")
    assert caught.value.object == path
    assert told in caught.value.message
    assert caught.value.message.startswith(path)


MALFORMED = [
    (b"{", 400, "arguments"),
    (b"{'a': 1}", 400, "arguments"),
    (b'{"count": 1} 2', 400, "arguments"),
    (b'{"count": 01}', 400, "arguments"),
    (b'{"name": "\xff"}', 400, "arguments.name"),
    (b"\xff\xfe", 400, "arguments"),
    (b"[]", 422, "arguments"),
    (b"null", 422, "arguments"),
    (b'"a"', 422, "arguments"),
    (b'{"count": 1e999}', 422, "arguments.count"),
    (b'{"anything": ' + b"[" * 5000 + b"]" * 5000 + b"}", 422, "arguments"),
    (b'{"anything": ' + b"[" * 990 + b"]" * 990 + b"}", 422, None),
]


@pytest.mark.parametrize(("body", "status", "path"), MALFORMED)
@pytest.mark.parametrize("name", ["plain", "raw"])
def test_what_is_no_json_is_refused_where_it_is(
    name: str, body: bytes, status: int, path: str | None
):
    """A body that nobody can read says at which byte, and never fails the gateway."""
    with pytest.raises(Problem) as caught:
        FORMS.arguments_in(name, body)
    assert (caught.value.status, caught.value.code) == (
        status,
        "malformed" if status == 400 else "invalid",
    )
    if path is not None:
        assert caught.value.object == path


NO_ARGUMENT = [
    msgpack.Ext(2, msgpack.encode(("<f8", (1,), 0))),
    msgpack.Ext(3, b""),
    msgpack.Ext(1, b""),
    msgpack.Ext(1, msgpack.encode(("<f8", (2,), bytes(8)))),
    msgpack.Ext(1, msgpack.encode(("|O", (1,), bytes(8)))),
    msgpack.Ext(1, msgpack.encode(("<f8", (1,), "12345678"))),
]


@pytest.mark.parametrize("extension", NO_ARGUMENT)
@pytest.mark.parametrize("name", ["plain", "image"])
def test_no_extension_but_an_array_is_an_argument(name: str, extension: Any):
    """The bytes of a request do not reach where the executor keeps its own."""
    parameter = "anything" if name == "plain" else "image"
    with pytest.raises(Problem) as caught:
        FORMS.arguments_in(name, msgpack.encode({parameter: extension}), MSGPACK)
    assert caught.value.status == 422
    assert caught.value.object.startswith(f"arguments.{parameter}")


def test_a_secret_argument_is_not_shown():
    """A problem is written to logs by who gets it."""
    told = manifest()
    raw = next(one for one in told["requests"] if one["name"] == "raw")
    raw["parameters"][0]["secret"] = True
    with pytest.raises(Problem) as caught:
        Forms(told).arguments_in("raw", b'{"data": "hunter2!"}')
    assert b"hunter2" not in caught.value.body()
    assert caught.value.object == "arguments.data"


def test_a_large_array_is_not_copied_more_than_needed():
    """Its base64 is decoded once, and the content joined once."""
    content = bytes(8 << 20)
    data = base64.b64encode(content).decode()
    body = json.dumps({"image": array("|u1", [len(content)], data)}).encode()
    del data
    tracemalloc.start()
    try:
        blob = FORMS.arguments_in("image", body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(blob) > len(content)
    assert peak < 2.2 * len(content)


garbage = st.binary(max_size=60) | st.text(max_size=60).map(str.encode)
wrong_values = st.recursive(
    plain_values | blobs.map(as_json),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["dtype", "shape", "data", "type", "blob", "children", "label"]), inner
        )
        | st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)
names = st.sampled_from(["image", "mask", "stack", "data", "pieces", "sample", "tree", "what"])


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(ARGUMENTS)),
    garbage | st.dictionaries(names, wrong_values).map(lambda it: json.dumps(it).encode()),
    st.sampled_from([JSON, MSGPACK]),
)
def test_garbage_is_arguments_or_a_problem(name: str, body: bytes, form: str):
    """Nothing that a client sends is a fault of the gateway."""
    taken_or_refused(name, body, form)


def taken_or_refused(name: str, body: bytes, form: str) -> None:
    blob, problem = outcome(name, body, form)
    if problem is None:
        assert isinstance(msgpack.decode(blob, ext_hook=lambda code, payload: code), dict)
    else:
        assert problem.status in (400, 422)
        assert problem.object.startswith("arguments")
        assert json.loads(problem.body())["code"] == problem.code


def outcome(name: str, body: bytes, form: str) -> tuple[bytes, Problem | None]:
    try:
        return FORMS.arguments_in(name, body, form), None
    except Problem as problem:
        return b"", problem


@pytest.mark.parametrize("form", [JSON, MSGPACK])
def test_mutated_bodies_are_arguments_or_problems(form: str):
    """The same, from bodies that are nearly right."""
    picture = np.arange(6.0).reshape(2, 3)
    known: list[tuple[str, Any]] = [
        ("raw", {"data": b"abc", "pieces": [b""], "by_name": {"a": b"b"}, "pair": [1, b"2"]}),
        ("image", {"image": picture, "mask": None, "stack": [picture, picture > 2]}),
        ("nested", {"sample": {"label": "a", "image": picture}, "tree": {"blob": b"x"}}),
        ("nested", {"what": {"type": "sound", "data": b"x"}, "step": ["move", b"y"]}),
    ]

    def taken(head: bytes, beside: Any) -> Any:
        name, _, body = head.partition(b" ")
        try:
            return FORMS.arguments_in(name.decode("utf-8", "replace"), body, form)
        except Problem as problem:
            raise ValueError(problem.message) from None

    def written(arguments: Any) -> bytes:
        return json.dumps(as_json(arguments)).encode() if form == JSON else encode(arguments)

    inputs = [(name.encode() + b" " + written(arguments), []) for name, arguments in known]
    drive(taken, inputs, decoded_each=1000)


def test_numpy_is_not_imported(tmp_path: Any):
    """It would be half of the gateway's memory."""
    import subprocess
    import sys

    program = (
        "import sys; from forebay.gateway import forms, problems, results;"
        "from forebay.gateway.openapi import describe;"
        "forms.Forms({}).arguments_in('a', b'{}'); assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ.copy())
