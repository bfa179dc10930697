"""Servers of tensors that the server of an application keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executor.serving import Serving, until
from tests.tensor.contents import same
from tests.tensor.shards import url_in

APP = """
import forebay
from forebay.tensor import Tensor

URL = {url!r}
app = forebay.App("training")
spec = forebay.TensorServer.spec({{"rows": Tensor((10, 2))}}, URL)
app.service(spec, name="ps", shards=2)

@app.request()
def add(row: int) -> list[float]:
    with forebay.TensorClient(URL, shards=2) as ps:
        ps.push("rows", row, 1.0, "add")
        return ps.pull("rows", [row, 0])[:, 0].tolist()

@app.request()
def held(ctx: forebay.Context) -> list[int]:
    first, second = app.specs("ps")
    with ctx.acquire(first) as one, ctx.acquire(second) as other:
        return [shard.describe()["tensors"]["rows"]["first"] for shard in (one, other)]
"""


@pytest.mark.timeout(120)
def test_requests_share_the_shards_of_their_application(tmp_path: Path) -> None:
    """The server keeps one process for each shard; what a request pushed, the next one pulls."""
    from forebay.tensor import TensorClient

    url = url_in(tmp_path)
    with Serving(tmp_path, APP.format(url=url)) as serving, serving.caller() as caller:
        until(lambda: len(idle(caller)) == 2)
        assert caller.run("add", row=9) == [1.0, 0.0]
        assert caller.run("add", row=9) == [2.0, 0.0]
        assert caller.run("held") == [0, 5]
        with TensorClient(url, shards=2) as ps:  # any program of the user
            assert same(ps.pull("rows", -1), ps.pull("rows", 9))
            assert ps.pull("rows", 9).tolist() == [2.0, 2.0]
        serving.kill()


def idle(caller: object) -> list[int]:
    """Shards that wait for a lease."""
    seen = caller.ask("services")["services"]  # type: ignore[attr-defined]
    return [it["pid"] for it in seen if it["state"] == "idle" and it["name"] == "TensorServer"]
