"""Watches the calls of a `grpc.aio` channel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from forebay.contrib.grpc.outcome import Outcome


def interceptors(outcome: Outcome) -> list[Any]:
    """One per kind of call, for a new channel."""
    kinds = (_UnaryUnary, _StreamUnary, _UnaryStream, _StreamStream)
    return [kind(outcome) for kind in kinds]


class _Watch:
    """Tells an `Outcome` how each call ended; changes nothing."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    async def one(self, continuation: Any, details: Any, request: Any) -> Any:
        """A call with one response: it has ended when its code is known."""
        self._outcome.began()
        code = None
        try:
            call = await continuation(details, request)
            code = await call.code()
        finally:
            self._outcome.ended(code)
        return call

    async def many(self, continuation: Any, details: Any, request: Any) -> Any:
        """A call with a stream of responses."""
        self._outcome.began()
        try:
            call = await continuation(details, request)
        except BaseException:
            self._outcome.ended(None)
            raise
        return self._responses(call)

    async def _responses(self, call: Any) -> AsyncIterator[Any]:
        code = None
        try:
            async for response in call:
                yield response
            code = await call.code()
        except grpc.aio.AioRpcError as error:
            code = error.code()
            raise
        finally:
            self._outcome.ended(code)


class _UnaryUnary(_Watch, grpc.aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = _Watch.one


class _StreamUnary(_Watch, grpc.aio.StreamUnaryClientInterceptor):
    intercept_stream_unary = _Watch.one


class _UnaryStream(_Watch, grpc.aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = _Watch.many


class _StreamStream(_Watch, grpc.aio.StreamStreamClientInterceptor):
    intercept_stream_stream = _Watch.many
