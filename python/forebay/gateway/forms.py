"""The arguments of requests as clients write them, made what the server's wire wants.

Its wire has MessagePack. JSON has no form for bytes, arrays and times: bytes are base64, an array
is `{"dtype", "shape", "data"}`, a time is text, which the worker reads as its annotation says.
Which text is bytes and which map is an array, the schemas of the manifest say (`x-forebay`); what
they do not mark stays as it is. The check against the manifest is the server's; here only what is
made anew is checked.

A body is not made a tree of values whole: each value without a mark is decoded and encoded by
itself, and the others are read where they lie, so that the content of an array is decoded once and
copied once. A body in MessagePack whose request has no marks is looked through and passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import msgpack

from forebay.gateway.amount import LEVELS_MAX, check_amount
from forebay.gateway.marks import Node, Nodes, put
from forebay.gateway.media import JSON
from forebay.gateway.msgpack_heads import map_head
from forebay.gateway.problems import Problem, invalid
from forebay.gateway.reading import FORMATS, Body, Buffer

__all__ = ["Forms"]

NOTHING: Final = msgpack.encode({})
"""No arguments, which an empty body says too."""

_encode = msgpack.Encoder().encode


class Forms:
    """The forms of the arguments of one application.

    Threads: any.

    Args:
        manifest: of the server.
    """

    __slots__ = ("_nodes", "_secret")

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        nodes = Nodes(manifest.get("definitions") or {})
        self._nodes: dict[str, dict[str, Node]] = {
            request["name"]: nodes.of_parameters(request["parameters"])
            for request in manifest.get("requests") or ()
        }
        self._secret = {
            f"{request['name']}.{one['name']}"
            for request in manifest.get("requests") or ()
            for one in request["parameters"]
            if one.get("secret")
        }

    def arguments_in(
        self, name: str, body: Body, form: str = JSON, path: str = "arguments"
    ) -> bytes:
        """The arguments as they travel.

        Args:
            name: of the request; one that the manifest does not have is left to the server.
            body: a map from the names of parameters, or nothing.
            form: `JSON` or `MSGPACK` of `forebay.gateway.media`.
            path: what the body is called in problems.

        Raises:
            Problem: 400, it cannot be read; 413, it has too many values; 422, one of them has not
                the form that its schema asks for.
        """
        if not len(memoryview(body)):
            return NOTHING
        if not isinstance(body, msgspec.Raw):  # a part of a body, which was looked at
            check_amount(body, form, path)
        format_ = FORMATS[form]
        marked = self._nodes.get(name)
        if not marked and (done := format_.unmarked(body)) is not None:
            return done
        members = format_.members(body, path)
        out: list[Buffer] = [map_head(len(members))]
        for key, value in members.items():
            out.append(_encode(key))
            try:
                put((marked or {}).get(key), format_, value, f"{path}.{key}", out)
            except Problem as problem:
                raise _hidden(problem) if f"{name}.{key}" in self._secret else problem from None
            except RecursionError:
                deep = f"{path}.{key}", f"at most {LEVELS_MAX} levels", "a deeper value"
                raise invalid(*deep) from None
        return b"".join(out)


def _hidden(problem: Problem) -> Problem:
    """The problem of an argument that is shown to nobody, whoever sent it."""
    return invalid(problem.object, str(problem.limit or "another value"), "a secret value")
