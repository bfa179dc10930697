"""A client that a public generator makes of the description submits, and gets results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gateway.http.http_serving import HttpServing
from tests.gateway.openapi_tools import run, tool

APP = Path(__file__).with_name("described_app.py")

PROGRAM = """
import json
import sys
import time

from made import AuthenticatedClient
from made.api.default import get_request, get_result, submit_add, submit_draw, submit_echo
from made.api.default import submit_fail, submit_measure, submit_turn
from made.models import (
    AddArguments,
    Box,
    BoxType,
    DrawArguments,
    EchoArguments,
    FailArguments,
    ForebayAccepted,
    ForebayArray,
    ForebayProblem,
    MeasureArguments,
    Sample,
    TurnArguments,
)

url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token, timeout=60)

accepted = submit_add.sync(client=client, body=AddArguments(a=20, b=22), priority=3)
assert isinstance(accepted, ForebayAccepted), accepted
request = get_request.sync(client=client, id=accepted.id, wait=30)
assert request.status == "succeeded", request
result = get_result.sync_detailed(client=client, id=accepted.id)
assert json.loads(result.content) == 42, result

now = submit_add.sync_detailed(client=client, body=AddArguments(a=1), prefer="wait=30")
assert (now.status_code, now.parsed) == (200, 2), now

wrong = submit_add.sync(client=client, body=AddArguments(a="x"))
assert isinstance(wrong, ForebayProblem), wrong
assert (wrong.code, wrong.object_) == ("invalid", "arguments.a"), wrong

array = ForebayArray(dtype="<i2", shape=[1, 2], data="AQACAA==")
turned = submit_turn.sync_detailed(client=client, body=TurnArguments(image=array), prefer="wait=30")
assert json.loads(turned.content) == {**array.to_dict(), "shape": [2, 1]}, turned

failed = submit_fail.sync(client=client, body=FailArguments(text="odd"), prefer="wait=30")
assert isinstance(failed, ForebayProblem), failed
assert (failed.status, failed.code) == (422, "failed"), failed

sample = Sample(label="a", weights=[0.5], blob="AAEC")
kept = submit_measure.sync_detailed(
    client=client, body=MeasureArguments(sample=sample), prefer="wait=30"
)
assert json.loads(kept.content) == sample.to_dict(), kept

box = Box(type_=BoxType.BOX, width=3)
drawn = submit_draw.sync_detailed(client=client, body=DrawArguments(shape=box), prefer="wait=30")
assert (drawn.parsed.type_, drawn.parsed.width) == (BoxType.BOX, 3), drawn

again = [
    submit_echo.sync(client=client, body=EchoArguments(content="AA=="), idempotency_key="once")
    for _ in range(2)
]
assert again[0].id == again[1].id, again
print("done")
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.leaks("the processes of the server come and go")
def test_a_generated_client_submits_and_gets_a_result(tmp_path: Path):
    """Any language with a generator has a client that is typed by the application."""
    generator = tool("openapi-python-client")
    with HttpServing(tmp_path, APP.read_text()) as serving:
        description = tmp_path / "openapi.json"
        description.write_bytes(serving.call("GET", "/openapi.json").body)
        made = tmp_path / "made"
        command = [generator, "generate", "--path", str(description), "--meta", "none"]
        told = run([*command, "--output-path", str(made)], tmp_path, timeout=120)
        assert "Unable to parse" not in told, told
        (tmp_path / "program.py").write_text(PROGRAM)
        command = [tool("python"), "program.py", serving.url, serving.token]
        assert run(command, tmp_path, timeout=120).endswith("done\n")
        paths = json.loads(description.read_bytes())["paths"]
        operations = sum(len(item) for item in paths.values())
        assert len([*made.glob("api/default/*.py")]) == operations + 1
