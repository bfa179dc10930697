"""Spans of OpenTelemetry for requests, acquires and calls: the extra `forebay[otel]`.

    import forebay.telemetry

    forebay.telemetry.enable()

An application calls it where it is imported, a program where it starts. Spans then go where the
process has OpenTelemetry send them (`opentelemetry.trace.set_tracer_provider`, or `provider`).

| span | kind | in |
|---|---|---|
| `send NAME` | producer | the program that submits |
| `process NAME` | consumer | the worker; its parent is `send NAME`, by way of the store |
| `pool acquire` | internal | the program or worker that acquires |
| `Class/method` | client, server | the caller, and the service |

The names of attributes are those of the conventions for messaging (in development) and RPC (a
release candidate), which still change: they stand in this file and nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from forebay import _trace
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider

__all__ = ["enable"]

NAME = "forebay"
"""Of the instrumentation, and what `messaging.system` and `rpc.system.name` say."""


def enable(provider: Callable[[], TracerProvider] | None = None) -> None:
    """Make spans in this process and in those that are forked from it.

    Call it before the first service is acquired: classes that were acquired before are not traced.

    Args:
        provider: makes what spans are made by, on first use in each process, since the threads of
            an exporter do not survive a fork; default: the global one of OpenTelemetry.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """
    try:
        import opentelemetry.trace  # noqa: F401 - for the error
    except ImportError as error:
        raise ConfigError("OpenTelemetry is not installed; install forebay[otel]") from error
    _trace.spans = OpenTelemetrySpans(provider)


class OpenTelemetrySpans:
    """The spans of one process, made when the first one begins."""

    def __init__(self, provider: Callable[[], TracerProvider] | None) -> None:
        self._provider = provider
        self._tracer: Tracer | None = None

    def send(self, name: str, traceparent: str | None) -> str | None:
        """See `forebay._trace.Spans`; the span ends at once: the store answers later."""
        if traceparent is not None:
            return traceparent  # the submitter's own span is the parent
        from opentelemetry.trace import SpanKind

        attributes = self._messaging("send", name)
        with self._span(f"send {name}", SpanKind.PRODUCER, attributes) as span:
            return _traceparent_of(span)

    @contextlib.contextmanager
    def process(self, name: str, id: str, attempt: int, traceparent: str | None) -> Iterator[None]:
        """See `forebay._trace.Spans`."""
        from opentelemetry.trace import SpanKind

        attributes = {
            **self._messaging("process", name),
            "messaging.message.id": id,
            "forebay.request.attempt": attempt,
        }
        with self._span(f"process {name}", SpanKind.CONSUMER, attributes, traceparent):
            yield

    @contextlib.contextmanager
    def acquire(self, pool: str, service: str) -> Iterator[None]:
        """See `forebay._trace.Spans`."""
        from opentelemetry.trace import SpanKind

        attributes = {"forebay.pool.name": pool, "forebay.service.name": service}
        with self._span("pool acquire", SpanKind.INTERNAL, attributes):
            yield

    @contextlib.contextmanager
    def call(self, service: str, method: str) -> Iterator[str]:
        """See `forebay._trace.Spans`."""
        from opentelemetry.trace import SpanKind

        with self._span(f"{service}/{method}", SpanKind.CLIENT, _rpc(service, method)) as span:
            yield _traceparent_of(span)

    @contextlib.contextmanager
    def serve(self, service: str, method: str, traceparent: str) -> Iterator[None]:
        """See `forebay._trace.Spans`."""
        from opentelemetry.trace import SpanKind

        attributes = _rpc(service, method)
        with self._span(f"{service}/{method}", SpanKind.SERVER, attributes, traceparent):
            yield

    def _messaging(self, operation: str, name: str) -> dict[str, Any]:
        return {
            "messaging.system": NAME,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": name,
        }

    @contextlib.contextmanager
    def _span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        traceparent: str | None = None,
    ) -> Iterator[Span]:
        """A span that is the current one in the block; an exception ends it with its type."""
        tracer = self._tracer or self._make_tracer()
        begun = tracer.start_as_current_span(
            name,
            context=_context_of(traceparent),
            kind=kind,
            attributes=attributes,
            record_exception=False,  # tracebacks may hold arguments
            set_status_on_exception=False,
        )
        with begun as span:
            try:
                yield span
            except BaseException as error:
                from opentelemetry.trace import StatusCode

                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(StatusCode.ERROR)
                raise

    def _make_tracer(self) -> Tracer:
        from opentelemetry.trace import get_tracer

        made = None if self._provider is None else self._provider()
        self._tracer = tracer = get_tracer(NAME, tracer_provider=made)
        return tracer


def _rpc(service: str, method: str) -> dict[str, Any]:
    return {"rpc.system.name": NAME, "rpc.method": f"{service}/{method}"}


def _traceparent_of(span: Span) -> str:
    """A span as the W3C writes it in a header."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _context_of(traceparent: str | None) -> Any:
    """The context of a remote parent; None: the current one."""
    if traceparent is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})
