"""Events out of a stream of bytes, wherever it is cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_client import errors
from forebay_client.http.server_events import EventReader, ServerEvent

STREAM = (
    ": hello\n\n"
    'id: 7\nevent: progress\ndata: {"done": 1}\n\n'
    "data: grün\rdata:and blue\r\n\r\n"
    ":\n\n"
    "id: 9\n\n"
    "event: end\ndata\n\n"
    "data: never ended"
).encode()
EVENTS = [
    ServerEvent("7", "progress", '{"done": 1}'),
    ServerEvent("7", "message", "grün\nand blue"),
    ServerEvent("9", "end", ""),
]


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_events_come_however_the_stream_is_cut(cuts: set[int]) -> None:
    """TCP cuts where it likes, also within a letter and a line end."""
    reader = EventReader("peer", 1000)
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[low:high] for low, high in itertools.pairwise(edges)]
    assert [event for piece in pieces for event in reader.feed(piece)] == EVENTS


def test_an_event_without_an_end_is_bounded() -> None:
    """A server that sends one line for ever does not fill the memory."""
    for piece in (b"x" * 100, b"data: x\n" * 12):
        with pytest.raises(errors.ProtocolError, match="more than 1000 characters"):
            feed_often(EventReader("peer", 1000), piece)


def feed_often(reader: EventReader, piece: bytes) -> None:
    for _ in range(20):
        reader.feed(piece)
