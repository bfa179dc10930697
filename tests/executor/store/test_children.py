"""What a request submitted is listed by the request."""

from __future__ import annotations

import json
import subprocess
import sys

from forebay.executor.client.client import Client
from tests.executor.client_fixtures import client_of_serving, serving
from tests.executor.serving import Serving

__all__ = ["client_of_serving", "serving"]

APP = """
import forebay

app = forebay.App("family")


@app.request(lane="short")
def child(number: int) -> int:
    return number


@app.request()
def parent(count: int) -> int:
    with forebay.Client() as client:
        return sum(client.submit("child", number=number).result() for number in range(count))
"""


def test_children_are_listed_by_their_parent(serving: Serving, client: Client) -> None:
    """By a program and by the command, a page at a time, and no others with them."""
    other = client.submit("child", number=7)
    request = client.submit("parent", count=3)
    assert request.result(timeout=30) == 3
    client.submit("child", number=8).result(timeout=30)
    other.result(timeout=30)
    found = client.list(parent=request.id)
    assert [row["name"] for row in found] == ["child"] * 3
    assert {client.get(row["id"]).show()["parent"] for row in found} == {request.id}
    second = client.list(parent=request.id, limit=2, before=found[0]["id"])
    assert [row["id"] for row in second] == [row["id"] for row in found[1:]]
    assert client.list(parent=found[0]["id"]) == []
    command = [sys.executable, "-m", "forebay.cli", "ps", "--parent", request.id, "--json"]
    told = subprocess.run(
        [*command, "--app", str(serving.file)],
        env=serving.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line)["id"] for line in told.stdout.splitlines()]
    assert lines == [row["id"] for row in found]
