"""Schemathesis over the description of a running gateway: no 5xx, and no answer outside its schema.

`FOREBAY_SCHEMATHESIS_EXAMPLES` sets how many requests each operation gets in the search, which is
otherwise short and the same each time.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.gateway.http.http_serving import HttpServing
from tests.gateway.openapi_tools import run, tool

HERE = Path(__file__).parent
APP = HERE / "described_app.py"
HOOKS = HERE / "schemathesis_hooks/messagepack_body.py"
EXAMPLES = int(os.environ.get("FOREBAY_SCHEMATHESIS_EXAMPLES", "0"))
EXAMPLES_SHORT = 8

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "missing_required_header",
    "ignored_auth",
    "use_after_free",
]
"""Not `unsupported_method` and `allow_header_conformance`: the names of requests and the ids share
a path, of which the description says POST for the first and GET for the others. Not those that hold
the gateway to what its schemas accept: that a shape fits its data is beyond JSON Schema."""

LEFT_OUT = ["/v1/stop", "/v1/cordon", "/v1/reload", "/v1/events", "/v1/requests/{id}/events"]
"""What ends or closes the server, or an answer that does not end."""


@pytest.mark.slow
@pytest.mark.timeout(max(900, 60 * EXAMPLES))
@pytest.mark.leaks("the processes of the server come and go")
def test_every_answer_is_in_the_description(tmp_path: Path):
    """A client that was made from the description is never surprised."""
    schemathesis = tool("schemathesis")
    with HttpServing(tmp_path, APP.read_text()) as serving:
        command = [schemathesis, "run", f"{serving.url}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {serving.token}"]
        command += ["--checks", ",".join(CHECKS)]
        for path in LEFT_OUT:
            command += ["--exclude-path", path]
        if EXAMPLES:
            command += ["--max-examples", str(EXAMPLES), "--generation-database", "none"]
        else:
            command += ["--max-examples", str(EXAMPLES_SHORT), "--generation-deterministic"]
        command += ["--request-timeout", "70", "--suppress-health-check", "all", "--no-color"]
        hooks = {"SCHEMATHESIS_HOOKS": HOOKS.stem, "PYTHONPATH": os.fspath(HOOKS.parent)}
        told = run(command, tmp_path, timeout=max(880, 58 * EXAMPLES), **hooks)
        assert "Tested:" in told
        assert serving.call("GET", "/healthz", token=None).status == 200
