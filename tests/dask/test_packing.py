"""How Dask's frames lie in ours: nothing is lost, and what is kept keeps nothing else."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from distributed.protocol.utils import frame_split_size, merge_memoryviews
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.dask._packing import (
    GROUP_BYTES_MAX,
    JOIN_BYTES_MAX,
    LAYOUT_MARK,
    PARTS_MAX,
    PLAIN_BYTES_MAX,
    PLAIN_FRAMES_MAX,
    GarbledError,
    nbytes,
    pack,
    unpack,
)

LONG = JOIN_BYTES_MAX + 1
MANY = [b"h" * 10] * PLAIN_FRAMES_MAX  # so many that a message with them has a layout
SIZES = st.sampled_from([0, 1, 7, 100, 2_049, JOIN_BYTES_MAX, LONG, 70_000])


def arrived(parts: list[Any]) -> list[Any]:
    """What the other end receives: short frames as bytes, long ones as memory of their own."""
    return [bytes(part) if nbytes(part) <= 65_536 else bytearray(part) for part in parts]


def carried(frames: list[Any]) -> list[Any]:
    """Frames that went through both."""
    return unpack(arrived(pack(frames)[0]))


def made(kind: str, size: int) -> Any:
    """A frame as a serializer may give one."""
    content = bytes(index % 251 for index in range(size))
    if kind == "bytes":
        return content
    if kind == "pickle":
        return memoryview(content)
    if kind == "bytearray":
        return bytearray(content)
    return memoryview(np.frombuffer(content[: size // 8 * 8], dtype="i8").copy())


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["bytes", "pickle", "bytearray", "int64"]), SIZES), min_size=1
    )
)
def test_every_frame_arrives_as_it_was(kinds: list[tuple[str, int]]) -> None:
    """Whatever a serializer gives, in whatever order, the other side decodes the same bytes."""
    frames = [made(*kind) for kind in kinds]
    parts, sent_bytes = pack(frames)
    assert sent_bytes == sum(nbytes(part) for part in parts)
    got = unpack(arrived(parts))
    assert [bytes(frame) for frame in got] == [bytes(frame) for frame in frames]


@pytest.mark.parametrize("size", [16, 5_000, LONG, 200_000])
def test_two_arrays_never_share_memory(size: int) -> None:
    """A column of a table that is kept does not keep the others alive."""
    for count in (3, PLAIN_FRAMES_MAX):  # as they are, and with a layout
        got = carried([b"head", made("int64", size)] * count)
        assert len({id(array.obj) for array in got[1::2]}) == count


def test_a_long_head_is_not_kept_by_the_array_behind_it() -> None:
    """A small array does not keep the pickle that came with it."""
    got = carried([*MANY, b"h" * 3_000, made("int64", 16)])
    assert nbytes(memoryview(got[-1].obj)) == 16
    got = carried([*MANY, made("int64", 16)])  # a short one is
    assert nbytes(memoryview(got[-1].obj)) > 16


def test_arrays_may_be_written_to() -> None:
    """An array that went through a worker can be changed in place, as over tcp://."""
    for size in (16, 5_000, 200_000):
        assert not carried([b"head", made("int64", size)])[-1].readonly
        assert not carried([*MANY, made("int64", size)])[-1].readonly


def test_shards_of_one_buffer_travel_and_arrive_as_one() -> None:
    """An array above the shard size is put together again without a copy."""
    array = np.arange(PLAIN_BYTES_MAX // 4)
    shards = frame_split_size(memoryview(array), array.nbytes // 4)
    parts, _ = pack([b"head", *shards])
    assert len(shards) == 4
    assert len(parts) == 3
    merged = merge_memoryviews(carried([b"head", *shards])[1:])
    assert np.array_equal(np.frombuffer(merged, dtype=array.dtype), array)


def test_two_views_of_one_buffer_that_are_no_neighbours_stay_apart() -> None:
    """Shards are told by where they lie, not only by their buffer."""
    view = memoryview(bytearray(range(256)) * 1_000)
    frames = [*MANY, view[:50_000], view[:50_000], view[200_000:]]
    assert [bytes(frame) for frame in carried(frames)] == [bytes(frame) for frame in frames]


def test_neighbours_share_a_frame_up_to_a_limit() -> None:
    """Ten thousand pickles are a few frames; none of them is longer than the limit says."""
    parts, _ = pack([b"p" * 1_000] * 10_000)
    assert len(parts) < 12
    assert max(map(nbytes, parts[1:])) < GROUP_BYTES_MAX + JOIN_BYTES_MAX


def test_more_arrays_than_a_message_has_frames_still_arrive() -> None:
    """A hundred thousand small arrays travel in one message; then some share memory."""
    frames = [b"head"] + [bytearray(struct.pack("<I", number)) for number in range(100_000)]
    parts, _ = pack(frames)
    assert len(parts) <= PARTS_MAX
    assert [bytes(frame) for frame in carried(frames)] == [bytes(frame) for frame in frames]


@pytest.mark.parametrize(
    "parts",
    [
        [b"1234567", b"x"],  # no lengths
        [struct.pack("<Q", 5), b"1234"],  # too few bytes
        [struct.pack("<Q", 1 << 60), b"1234"],
        [struct.pack("<Q", 3), b"1234"],  # too many
        [struct.pack("<Q", 4), b"1234", b"5"],
        [struct.pack("<2Q", 6, 2), b"1234", b"5678"],  # one frame in two
    ],
)
def test_lengths_that_do_not_fit_are_an_error(parts: list[bytes]) -> None:
    """A garbled message never becomes a wrong one, nor takes memory for what it claims."""
    with pytest.raises(GarbledError):
        unpack([LAYOUT_MARK + parts[0], *parts[1:]])
