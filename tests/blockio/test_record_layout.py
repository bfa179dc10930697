"""The layout of record files, as their page says it: files outlive the program that wrote them."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from forebay import _core
from forebay.blockio.records.commit import Commit, decode, encode, offset_of
from forebay.blockio.records.layout import Layout, record_dtype, sealed
from forebay.errors import BrokenError, ConfigError
from tests.blockio.record_files import PADDED, PLAIN

FORMAT = 2
CAPACITY_MAX = 1 << 40
RECORD_BYTES_MAX = 1 << 30


def crc(data: bytes) -> bytes:
    """The CRC-32C of some bytes."""
    return _core.record_checksums(data, len(data), len(data))


def of_bytes(n: int) -> np.dtype[np.void]:
    """Records of so many bytes."""
    return np.dtype(("u1", (n,)))


@pytest.mark.parametrize("checksums", [False, True])
def test_a_header_is_what_the_page_says(checksums: bool) -> None:
    """Another version reads the file by that page, or reads each record from somewhere else."""
    block = Layout.new(np.dtype("<f8"), 100, checksums=checksums).encode()
    text = b'{"descr":"<f8","shape":[]}'
    stride = 12 if checksums else 8
    numbers = (FORMAT, int(checksums), 8, stride, 100, 150, len(text))
    head = struct.pack("<8sIIQQQQI", b"fbrecord", *numbers) + text
    assert block[:-4] == head.ljust(4092, b"\0")
    assert block[-4:] == crc(block[:-4])
    assert sealed(head) == block


def test_commits_are_where_the_page_says() -> None:
    """Two copies in sectors of their own, in blocks that take turns behind the header."""
    assert [offset_of(sequence) for sequence in (0, 1, 2, 7)] == [4096, 8192, 4096, 8192]
    content = struct.pack("<8sQQ", b"fbcommit", 5, 7)
    copy = (content + crc(content)).ljust(2048, b"\0")
    assert encode(Commit(5, 7)) == copy * 2
    assert decode(copy * 2, 1) == (Commit(5, 7), 0, False)
    assert decode(copy, 1) == (Commit(5, 7), 1, False)
    newer = encode(Commit(7, 9))[:2048]
    assert decode(newer + copy, 1) == decode(copy + newer, 1) == (Commit(7, 9), 0, True)
    assert decode(b"", 1) == (None, 2, False)


@pytest.mark.parametrize(
    ("bytes_", "checksums", "stride"),
    [
        (1, False, 1),
        (447, False, 447),
        (448, False, 512),
        (444, True, 512),
        (443, True, 447),
        (512, False, 512),
        (513, False, 513),
        (PLAIN.itemsize, True, PLAIN.itemsize + 4),
        (PADDED.itemsize, False, 1024),
        (8 * 512 + 1, False, 9 * 512),
    ],
)
def test_a_stride_is_padded_where_that_wastes_an_eighth_at_most(
    bytes_: int, checksums: bool, stride: int
) -> None:
    """O_DIRECT reads hit whole sectors, and small records do not take a sector each."""
    assert Layout.new(of_bytes(bytes_), 0, checksums=checksums).stride_bytes == stride


@pytest.mark.parametrize(
    ("capacity", "bytes_", "group"),
    [(1, 8, 1), (4, 8, 1), (5, 8, 2), (100, 8, 25), (10**7, 8, 524_288), (10, 5 << 20, 1)],
)
def test_a_circular_file_has_room_for_its_window_and_two_groups(
    capacity: int, bytes_: int, group: int
) -> None:
    """A torn commit costs its group, and no record of the window before it."""
    layout = Layout.new(of_bytes(bytes_), capacity, checksums=False)
    slots = capacity + 2 * group
    assert (layout.slots, layout.max_group) == (slots, group)
    stride, whole = layout.stride_bytes, 12288 + slots * layout.stride_bytes
    numbers = [0, 1, slots - 1, slots, slots + 1, 3 * slots + 2]
    offsets = [12288 + number % slots * stride for number in numbers]
    assert [layout.offset(number) for number in numbers] == offsets
    assert layout.offsets(np.array(numbers)).tolist() == offsets
    assert [layout.data_bytes(n) for n in (0, slots, 9 * slots)] == [12288, whole, whole]
    assert layout.data_bytes(slots - 1) == whole - stride
    for appended in (0, capacity, capacity + 1, capacity + group + 1, 10 * slots):
        first = max(0, appended - capacity)
        assert layout.first(appended) == first
        assert layout.first_whole(appended) == max(0, first - group)


def test_a_file_that_grows_has_no_places() -> None:
    """Its records follow each other, and none is ever overwritten."""
    layout = Layout.new(np.dtype("<f8"), 0, checksums=False)
    assert (layout.slots, layout.max_group, layout.record_bytes) == (0, 0, 8)
    assert [layout.offset(n) for n in (0, 1, 10**9)] == [12288, 12296, 12288 + 8 * 10**9]
    assert layout.offsets(np.array([0, 7])).tolist() == [12288, 12344]
    assert (layout.first(10**9), layout.first_whole(10**9)) == (0, 0)
    assert layout.data_bytes(1000) == 12288 + 8000


def test_records_lie_in_their_strides() -> None:
    """A batch that is viewed with other strides mixes records."""
    for dtype in (PLAIN, PADDED, np.dtype(("<i4", (2, 3))), np.dtype("<u2")):
        layout = Layout.new(dtype, 0, checksums=True)
        block = np.arange(3 * layout.stride_bytes, dtype=np.uint64).astype(np.uint8)
        batch = layout.batch(block, 3)
        assert batch.shape == (3, *dtype.shape)
        for row in range(3):
            start = row * layout.stride_bytes
            assert batch[row].tobytes() == block[start : start + dtype.itemsize].tobytes()


def test_the_largest_and_smallest_that_there_may_be() -> None:
    """A limit that moves by one refuses files which its own program has made."""
    for capacity in (1, CAPACITY_MAX):
        block = Layout.new(np.dtype("<u2"), capacity, checksums=False).encode()
        assert Layout.decode(block, "ours").capacity == capacity
    beyond = Layout.new(np.dtype("<u2"), CAPACITY_MAX + 1, checksums=False).encode()
    with pytest.raises(BrokenError, match="a capacity of 1099511627777 are unknown"):
        Layout.decode(beyond, "beyond")
    for bytes_ in (1, RECORD_BYTES_MAX):
        assert record_dtype(of_bytes(bytes_)).itemsize == bytes_
    for bytes_ in (0, RECORD_BYTES_MAX + 1):
        with pytest.raises(ConfigError, match=r"it must have 1 to record_bytes_max .1073741824."):
            record_dtype(of_bytes(bytes_))


def test_a_description_fills_its_header_and_no_more() -> None:
    """One byte too many would be written over the checksum."""
    room = 4096 - 4 - struct.calcsize("<8sIIQQQQI")
    fields = len('{"descr":[["","|u1"]],"shape":[]}')
    layout = Layout.new(np.dtype([("n" * (room - fields), "u1")]), 0, checksums=False)
    assert Layout.decode(layout.encode(), "full") == layout
    layout = Layout.new(np.dtype([("n" * (room - fields + 1), "u1")]), 0, checksums=False)
    with pytest.raises(ConfigError, match=f"has {room + 1} bytes, the header has room for {room}"):
        layout.encode()


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        ("no such type", "is no dtype"),
        ("O", "holds Python objects"),
        (np.dtype(("i4", [("low", "i2"), ("high", "i2")])), "does not survive"),
        (np.dtype([("a", np.dtype(("i4", (2,))), (3,))]), "does not survive"),
        (np.dtype({"names": ["b", "a"], "formats": ["u1", "u1"], "offsets": [1, 0]}), "order"),
    ],
)
def test_a_dtype_that_no_file_can_hold_is_refused(dtype: object, reason: str) -> None:
    """It would be found out when the file is opened again."""
    with pytest.raises(ConfigError, match=reason):
        record_dtype(dtype)
