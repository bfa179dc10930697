"""Limits that are near: memory, queue, disk."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.executor.server.hooks.hooked import idle_hooks, webhook
from tests.executor.server.hooks.receiver import Receiver
from tests.executor.serving import Serving


def test_a_limit_that_is_near_is_told_once(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """Queue and disk: once when it comes near, not with each look."""
    hook = {**webhook(receiver), "on": ["queue", "disk"], "above": 0.5, "free": 10**18}
    serving = serve(hook, max_queued=10, hook_look_s=0.05, short_workers=1)
    told = receiver.call().told
    assert told["event"] == "disk"
    assert told["limit"]["kind"] == "disk"
    assert 0 < told["limit"]["value"] < told["limit"]["limit"] == 10**18
    with serving.caller() as caller:
        for number in range(8):
            caller.submit("fails", {"delay_s": 600}, number=number)
        told = receiver.call().told
        assert told["event"] == "queue"
        assert told["limit"] == {"kind": "queue", "value": told["limit"]["value"], "limit": 10}
        assert told["limit"]["value"] > 5
        with pytest.raises(queue.Empty):  # twenty looks later
            receiver.call(1.0)


def test_memory_that_is_near_its_limit_is_told(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """Of the limit that the server has, by what its workers hold."""
    hook = {**webhook(receiver), "on": ["memory"], "above": 0.5}
    serving = serve(hook, max_memory=500_000_000, hook_look_s=0.05)
    with serving.caller() as caller:
        assert caller.run("adds", a=1, b=2) == 3
        assert receiver.calls.empty()
        id = caller.submit("holds", size=270_000_000)
        call = receiver.call()
        gauges = {name: value for name, _, value in caller.ask("metrics")["gauges"]}
        caller.ask("cancel", id)
    assert call.told["event"] == "memory"
    limit = call.told["limit"]
    assert (limit["kind"], limit["limit"]) == ("memory", gauges["forebay_memory_limit_bytes"])
    assert limit["limit"] / 2 < limit["value"] < limit["limit"]


def test_memory_and_queue_are_the_gauges_of_the_server(tmp_path: Path) -> None:
    """Memory calls above its part and not below it; requests that wait and that run both count."""
    hooks = idle_hooks(tmp_path, "memory", "queue")
    held = 900
    hooks._metrics = lambda: {
        "gauges": [
            ("forebay_memory_limit_bytes", {}, 1000),
            ("forebay_memory_resident_bytes", {}, held),
            ("forebay_requests_waiting", {"reason": "worker"}, 3),
            ("forebay_requests_waiting", {"reason": "time"}, 4),
            ("forebay_requests_running", {}, 5),
        ]
    }
    assert hooks._values() == {"memory": (900, 1000), "queue": (12, 100)}
    hooks._look()
    assert hooks.outbox.reports() == 0
    held = 901
    hooks._look()
    hooks._look()
    assert hooks.outbox.reports() == 1
