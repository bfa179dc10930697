"""Spans of OpenTelemetry: one trace from the program that submits to the service's method."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import forebay
import forebay.telemetry
from forebay import _trace
from tests.executor.serving import Serving

SOURCE = """
import json

import forebay
import forebay.telemetry
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()


def provider():
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


forebay.telemetry.enable(provider)
app = forebay.App("traces")


class Echo(forebay.Service):
    def say(self, text: str) -> str:
        return text

    def fail(self) -> None:
        raise ValueError("no")

    def spans(self) -> list[str]:
        return [span.to_json() for span in exporter.get_finished_spans()]


@app.request(lane="short")
def talk(ctx: forebay.Context) -> list[str]:
    with forebay.acquire(Echo) as echo:
        echo.say("hello")
        return echo.spans()


@app.request(lane="short")
def spans() -> list[str]:
    return [span.to_json() for span in exporter.get_finished_spans()]


@app.request()
async def talk_async(ctx: forebay.Context) -> list[str]:
    async with forebay.acquire(Echo) as echo:
        await echo.say("hello")
    return [span.to_json() for span in exporter.get_finished_spans()]


@app.request(lane="short")
def fail() -> None:
    with forebay.acquire(Echo) as echo:
        echo.fail()
"""


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Spans of this process, which submits."""
    monkeypatch.setattr(_trace, "spans", None)
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    forebay.telemetry.enable(lambda: provider)
    return exporter


@pytest.fixture
def client(tmp_path: Path, exporter: InMemorySpanExporter) -> Iterator[forebay.Client]:
    with (
        Serving(tmp_path, SOURCE, short_workers=1, long_workers=0) as serving,
        forebay.Client(f"unix://{serving.socket}") as client,
    ):
        yield client


def named(told: list[str], name: str) -> dict[str, Any]:
    """The only span of a name."""
    (span,) = [span for span in map(json.loads, told) if span["name"] == name]
    return dict(span)


def ours(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = [span for span in exporter.get_finished_spans() if span.name == name]
    return span


def test_one_trace_goes_from_the_submission_to_the_service(
    client: forebay.Client, exporter: InMemorySpanExporter
) -> None:
    """A slow request is three traces that nobody can put together."""
    request = client.submit("talk")
    in_service = named(request.result(), "Echo/say")
    in_worker = client.run("spans")
    send = ours(exporter, "send talk")
    process = named(in_worker, "process talk")
    acquire = named(in_worker, "pool acquire")
    call = named(in_worker, "Echo/say")
    trace = f"0x{send.context.trace_id:032x}"
    for span in (process, acquire, call, in_service):
        assert span["context"]["trace_id"] == trace
    assert process["parent_id"] == f"0x{send.context.span_id:016x}"
    assert acquire["parent_id"] == process["context"]["span_id"]
    assert call["parent_id"] == process["context"]["span_id"]
    assert in_service["parent_id"] == call["context"]["span_id"]
    kinds = [send.kind.name, *(span["kind"] for span in (process, acquire, call, in_service))]
    assert [kind.removeprefix("SpanKind.") for kind in kinds] == [
        "PRODUCER",
        "CONSUMER",
        "INTERNAL",
        "CLIENT",
        "SERVER",
    ]
    assert process["attributes"] == {
        "messaging.system": "forebay",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "talk",
        "messaging.message.id": request.id,
        "forebay.request.attempt": 1,
    }
    assert call["attributes"] == {"rpc.system.name": "forebay", "rpc.method": "Echo/say"}


def test_the_callers_own_traceparent_goes_on(client: forebay.Client) -> None:
    """The trace of an HTTP request ends at the submission."""
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.submit("talk", options=forebay.Submit(traceparent=given)).result()
    process = named(client.run("spans"), "process talk")
    assert process["context"]["trace_id"] == "0x0af7651916cd43dd8448eb211c80319c"
    assert process["parent_id"] == "0xb7ad6b7169203331"


def test_asynchronous_requests_are_traced(client: forebay.Client) -> None:
    """The async lane is missing in every trace."""
    told = client.run("talk_async")
    acquire, call = named(told, "pool acquire"), named(told, "Echo/say")
    assert acquire["context"]["trace_id"] == call["context"]["trace_id"]
    assert acquire["parent_id"] == call["parent_id"] is not None


def test_a_failure_is_told_by_its_type_alone(client: forebay.Client) -> None:
    """Arguments of users are in the traces' store."""
    with pytest.raises(forebay.RemoteError):
        client.run("fail")
    told = client.run("spans")
    for name in ("process fail", "Echo/fail"):
        span = named(told, name)
        assert span["attributes"]["error.type"].endswith("ValueError")
        assert span["status"] == {"status_code": "ERROR"}
        assert span["events"] == []


def test_nothing_is_imported_where_it_is_not_enabled() -> None:
    """Everybody pays for a library that few use."""
    check = "import sys, forebay, forebay.executor, forebay.pool; forebay.App, forebay.acquire;"
    check += "assert not [it for it in sys.modules if it.startswith('opentelemetry')]"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_without_opentelemetry_it_says_what_to_install() -> None:
    """An ImportError names a module that no user knows."""
    check = """
import sys
sys.modules["opentelemetry"] = None
import forebay, forebay.telemetry
try:
    forebay.telemetry.enable()
except forebay.ConfigError as error:
    assert "install forebay[otel]" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", check], check=True)
