"""Stub and registration of the service `examples.Words`.

Written by hand in the shape in which grpcio-tools generates them, so that the example needs no code
generator; a text travels as UTF-8, a count as decimal digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import grpc

SERVICE = "examples.Words"


def _encode(value: str | int) -> bytes:
    return str(value).encode()


def _decode(data: bytes) -> str:
    return data.decode()


class WordsStub:
    """Methods of the service, on a channel."""

    def __init__(self, channel: Any) -> None:
        self.Count = channel.unary_unary(
            f"/{SERVICE}/Count", request_serializer=_encode, response_deserializer=int
        )
        self.Top = channel.unary_stream(
            f"/{SERVICE}/Top", request_serializer=_encode, response_deserializer=_decode
        )


class WordsServicer(Protocol):
    """What a server implements."""

    def Count(self, request: str, context: Any) -> int:
        """How often a word occurs."""

    def Top(self, request: str, context: Any) -> Iterator[str]:
        """So many words, the most frequent first."""


def add_words_to_server(servicer: WordsServicer, server: Any) -> None:
    """Have a server serve it."""
    handlers = {
        "Count": grpc.unary_unary_rpc_method_handler(
            servicer.Count, request_deserializer=_decode, response_serializer=_encode
        ),
        "Top": grpc.unary_stream_rpc_method_handler(
            servicer.Top, request_deserializer=_decode, response_serializer=_encode
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
