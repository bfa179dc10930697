"""Headers that somebody else wrote: refused by name, or a layout that Forebay would have made."""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.blockio.records.commit import Commit, encode
from forebay.blockio.records.file import RecordFile
from forebay.blockio.records.layout import _HEAD, MAGIC, VERSION, Layout, describe, sealed
from forebay.errors import BrokenError, ConfigError
from tests.blockio.alone import alone
from tests.blockio.record_files import PADDED, PLAIN

pytestmark = pytest.mark.usefixtures("default_of_the_test")

SEED = int(os.environ.get("FOREBAY_RECORD_SEED", str(secrets.randbits(32))))
MUTANTS = 20_000


def header(
    description: bytes | str = '{"descr":"<f8","shape":[]}',
    *,
    record_bytes: int = 8,
    stride: int = 8,
    capacity: int = 0,
    slots: int = 0,
    flags: int = 0,
    version: int = VERSION,
) -> bytes:
    """A header with a right checksum, whatever it says: no secret is in it."""
    text = description.encode() if isinstance(description, str) else description
    fields = (MAGIC, version, flags, record_bytes, stride, capacity, slots, len(text))
    return sealed(_HEAD.pack(*fields) + text)


def crafted(path: Path, head: bytes, records: bytes = b"\x41" * 160, appended: int = 20) -> Path:
    """A record file with that header, whose commits are right."""
    commits = encode(Commit(0, 0)) + encode(Commit(1, appended))
    path.write_bytes(head + commits + records)
    return path


OBJECTS = [
    '"|O"',
    '"O"',
    '[["a","|O"]]',
    '[["a","<f4"],["b",[["c","|O"]]]]',
    '[["a","|O",[1]]]',
]


def open_and_touch(*paths: str) -> None:
    """Open files of Python objects that are addresses of their author's choice."""
    for path in paths:
        for mode in ("r", "a"):
            with pytest.raises(BrokenError, match="is damaged"):
                RecordFile(path, mode=mode).gather([0, 1]).tolist()  # type: ignore[call-overload]


def test_a_file_of_python_objects_is_refused(tmp_path: Path) -> None:
    """Whoever sends a file would choose the addresses that this process jumps to."""
    paths = []
    for number, descr in enumerate(OBJECTS):
        size = 12 if "f4" in descr else 8
        head = header(f'{{"descr":{descr},"shape":[]}}', record_bytes=size, stride=size)
        paths.append(crafted(tmp_path / f"evil{number}.fbr", head, b"\x41" * 240))
    alone(open_and_touch, *paths)  # what is believed ends the process


DTYPE_F8 = '{"descr":"<f8","shape":[]}'

STRANGE = {
    "stride of nothing": header(stride=0),
    "stride shorter than a record": header(stride=4),
    "stride without room for a checksum": header(stride=8, flags=1),
    "another stride": header(stride=16),
    "slots of a file that grows": header(slots=3),
    "fewer slots than its capacity": header(capacity=100, slots=50),
    "no slots": header(capacity=100, slots=0),
    "a capacity beyond the largest": header(capacity=1 << 60, slots=(1 << 60) + 2),
    "an unknown flag": header(flags=2),
    "empty records": header('{"descr":"|V0","shape":[]}', record_bytes=0, stride=0),
    "no records of no shape": header('{"descr":"<f8","shape":[0]}', record_bytes=0, stride=0),
    "too large a record": header('{"descr":"<f8","shape":[134217729]}', record_bytes=(1 << 30) + 8),
    "no description": header(""),
    "no JSON": header("numpy.dtype('O')"),
    "no text": header(b"\xff\xfe"),
    "a list of nothing": header('{"descr":[],"shape":[]}', record_bytes=0, stride=0),
    "a number": header("7"),
    "no shape": header('{"descr":"<f8"}'),
    "a shape of text": header('{"descr":"<f8","shape":["2"]}'),
    "a shape that is no list": header('{"descr":"<f8","shape":2}'),
    "an endless shape": header(json.dumps({"descr": "<f8", "shape": [1] * 900})),
    "a negative shape": header('{"descr":"<f8","shape":[-1]}'),
    "a type of several": header('{"descr":"f4,f4","shape":[]}'),
    "an unknown type": header('{"descr":"<q8","shape":[]}'),
    "twice the same field": header('{"descr":[["a","<f4"],["a","<f4"]],"shape":[]}'),
    "deeper than the stack": header("[" * 4000),
    "another size": header(DTYPE_F8, record_bytes=4),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_header_that_no_forebay_writes_is_refused(tmp_path: Path, kind: str) -> None:
    """A stride of 0 divided by zero; another one reads each record from somewhere else."""
    path = crafted(tmp_path / "strange.fbr", STRANGE[kind])
    for mode in ("r", "a"):
        with pytest.raises(BrokenError, match=r"strange\.fbr is damaged: .*; restore it"):
            RecordFile(path, mode=mode)  # type: ignore[call-overload]


@pytest.mark.parametrize("version", [1, VERSION + 1])
def test_another_format_is_refused_by_name(tmp_path: Path, version: int) -> None:
    """Records of another format would look damaged, one and all."""
    path = crafted(tmp_path / "other.fbr", header(version=version))
    with pytest.raises(ConfigError, match=f"has format {version}, and this Forebay knows"):
        RecordFile(path)


DTYPES: list[Any] = [
    PLAIN,
    PADDED,
    np.dtype(("<f4", (768,))),
    np.dtype("<M8[25s]"),
    np.dtype([("a", "<f4", (2, 3)), ("b", [("c", "S7"), ("d", "<U3")])], align=True),
    np.dtype({"names": ["x", "y"], "formats": ["<i2", "<c16"], "offsets": [2, 8], "itemsize": 32}),
]
"""Of each kind that may be written down, so that mutants begin where something is right."""


def _headers() -> list[bytes]:
    return [
        Layout.new(dtype, capacity, checksums=checksums).encode()
        for dtype in DTYPES
        for capacity in (0, 100)
        for checksums in (False, True)
    ]


def _number(chance: random.Random) -> int:
    return chance.choice([0, 1, 7, 512, chance.getrandbits(16), chance.getrandbits(64), 2**64 - 1])


def _mutant(chance: random.Random, whole: bytes) -> bytes:
    """A header with a few changes in its fields or in its description; sealed again, mostly."""
    magic, *numbers, length = _HEAD.unpack_from(whole)
    text = bytearray(whole[_HEAD.size : _HEAD.size + length])
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(text) + 1)
        match chance.randrange(6):
            case 0:
                index = chance.randrange(len(numbers))
                room = 32 if index < 2 else 64
                numbers[index] = _number(chance) & ((1 << room) - 1)
            case 1 if at < len(text):
                text[at] ^= 1 << chance.randrange(8)
            case 2:
                text[at : at + chance.randrange(8)] = b""
            case 3:
                text[at:at] = chance.choice(
                    [b"|O", b"[", b"]", b'"', b"0", b"99999999999", b",", b"null", b"V0", b"-1"]
                )
            case 4:
                start = chance.randrange(len(text) + 1)
                text[at:at] = text[start : start + chance.randrange(30)]
            case _:
                length = _number(chance) & 0xFFFF_FFFF
    said = len(text) if chance.random() < 0.8 else length & 0xFFFF_FFFF
    content = (_HEAD.pack(magic, *numbers, said) + bytes(text))[:4092]
    return sealed(content) if chance.random() < 0.95 else content.ljust(4096, b"\0")


@pytest.mark.filterwarnings("ignore")  # of numpy, on what a mutant says
def test_mutants_of_a_header_are_refused_or_a_layout_of_ours() -> None:
    """A file that was made to do harm must end in an error that the documentation names."""
    sys.stdout.write(f"FOREBAY_RECORD_SEED={SEED}\n")  # shown where it fails
    chance, headers, accepted = random.Random(SEED), _headers(), 0
    for _ in range(MUTANTS):
        block = _mutant(chance, chance.choice(headers))
        try:
            layout = Layout.decode(block, "mutant")
        except (BrokenError, ConfigError):
            continue
        accepted += 1
        assert not layout.dtype.hasobject, (SEED, block)
        made = Layout.new(layout.dtype, layout.capacity, checksums=layout.checksums)
        assert layout == made, (SEED, block)
        if layout.stride_bytes < 1 << 20:
            batch = layout.batch(np.zeros(3 * layout.stride_bytes, np.uint8), 3)
            assert len(batch.tolist()) == 3, (SEED, block)
    assert 0 < accepted < MUTANTS, SEED


def test_headers_survive_being_written_down() -> None:
    """What is refused must not be what others have made."""
    for block in _headers():
        layout = Layout.decode(block, "ours")
        assert layout.encode() == block
    for dtype in DTYPES:
        described = describe(dtype)
        assert describe(
            Layout.decode(Layout.new(dtype, 0, checksums=False).encode(), "").dtype
        ) == (described)
