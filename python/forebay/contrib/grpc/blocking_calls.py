"""Watches the calls of a blocking gRPC channel."""

from __future__ import annotations

from typing import Any

import grpc

from forebay.contrib.grpc.outcome import Outcome


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Tells an `Outcome` how each call ended; changes nothing."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def _watch(self, continuation: Any, details: Any, request: Any) -> Any:
        self._outcome.began()
        try:
            call = continuation(details, request)
        except BaseException:
            self._outcome.ended(None)
            raise
        call.add_done_callback(lambda done: self._outcome.ended(done.code()))
        return call

    intercept_unary_unary = _watch
    intercept_unary_stream = _watch
    intercept_stream_unary = _watch
    intercept_stream_stream = _watch
