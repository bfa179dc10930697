"""Which messages are serialized in a thread, so that the loop goes on meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distributed.protocol import to_serialize
from distributed.protocol.serialize import Serialized, ToPickle

from forebay.dask._weight import outweighs

BIG = np.zeros(2_000)
THRESHOLD = 10_000


def nested(depth: int) -> Any:
    """A list so deep that no estimate reaches its end."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "message",
    [
        {"op": "x", "data": {"key": to_serialize(BIG)}},
        [{"op": "a"}, {"op": "b", "value": ToPickle(BIG)}],
        {"data": {number: to_serialize(BIG[:200]) for number in range(10)}},
        {"blob": b"x" * 20_000},
        to_serialize(nested(100_000)),  # what cannot be estimated
    ],
)
def test_a_heavy_payload_is_found_wherever_dask_puts_one(message: Any) -> None:
    """A worker that sends an array answers others meanwhile."""
    assert outweighs(message, THRESHOLD)


@pytest.mark.parametrize(
    "message",
    [
        {"op": "heartbeat", "metrics": {"cpu": 1.0}},
        {"data": to_serialize(BIG[:10])},
        {"data": Serialized({}, [memoryview(BIG)])},  # is serialized already
        [{"op": "x"}] * 100_000,
    ],
)
def test_a_light_message_is_not(message: Any) -> None:
    """A message that costs microseconds does not wait for a thread."""
    assert not outweighs(message, THRESHOLD)
