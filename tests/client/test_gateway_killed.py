"""What a program notices of a gateway that is killed again and again."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from forebay_client import Client
from tests.client.tls_serving import TlsServing

pytestmark = pytest.mark.leaks(reason="the server starts processes when it needs them")

KILLS = 5
SUBMITTERS = 3
STEPS = 200


def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    """No submission, no result, no line of a log; the program sees nothing of it."""
    marks, over = tmp_path / "marks", threading.Event()
    sent: list[str] = []
    wrong: list[object] = []
    with (
        TlsServing(tmp_path) as serving,
        Client(serving.url, **serving.client_options, timeout=60.0) as client,
    ):
        counting = client.submit("count", steps=STEPS)
        lines: list[str] = []

        def follow() -> None:
            lines.extend("".join(counting.logs()).split())

        def submit(number: int) -> None:
            try:
                at = 0
                while not over.is_set():
                    keys = [f"{number}-{at}-{part}" for part in range(5)]
                    sent.extend(keys)
                    some = [{"path": str(marks), "key": key} for key in keys[1:]]
                    requests = [client.submit_nowait("mark", path=str(marks), key=keys[0])]
                    requests += client.submit_many("mark", some)
                    wrong.extend(
                        one
                        for one, key in zip(requests, keys, strict=True)
                        if one.result(timeout=60) != key
                    )
                    at += 1
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=follow)]
        threads += [threading.Thread(target=submit, args=(at,)) for at in range(SUBMITTERS)]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            over.wait(0.4)
            serving.kill_gateway()
            serving.wait_healthy()
        over.set()
        for thread in threads:
            thread.join(60)
        assert wrong == []
        assert lines == [str(step) for step in range(STEPS)]
        assert counting.result(timeout=60) == STEPS
    ran = Counter(marks.read_text().split())
    assert ran == Counter(sent)
    assert len(sent) > KILLS
