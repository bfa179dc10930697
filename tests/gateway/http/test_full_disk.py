"""A server with a gateway that is started again on a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executor.client_fixtures import fill, small_disk
from tests.gateway.http.http_serving import HttpServing


@pytest.mark.timeout(120)
def test_a_killed_server_is_started_again_on_a_full_disk(tmp_path: Path) -> None:
    """Its results can be read over HTTP; only the link for a browser is missing, with a warning."""
    with small_disk(tmp_path, "16m") as disk:
        serving = HttpServing(tmp_path)
        try:
            serving.start()
            id_ = serving.submit("add", a=1)
            assert serving.result(id_).json == 2
            serving.kill()
            ballast = fill(disk)
            serving.start(ready=False)
            assert "no link that opens a browser session" in serving.hear("warning")["text"]
            told = serving.hear("http")
            assert told["link"] is None
            assert serving.result(id_).json == 2
            ballast.unlink()
            assert serving.result(serving.submit("add", a=2)).json == 3
        finally:
            serving.close()
