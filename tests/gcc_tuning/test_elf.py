"""The ELF reader agrees with binutils and survives hostile files."""

from __future__ import annotations

import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.gcc_tuning.elf import ElfError, code_bytes, read_sections


@pytest.fixture(scope="module")
def object_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("elf")
    source = 'const char text[] = "abc"; int data = 7, zero[50]; int f(int x) { return x * 3; }'
    (folder / "x.c").write_text(source)
    subprocess.run(["gcc", "-Os", "-c", "x.c"], cwd=folder, check=True)
    return (folder / "x.o").read_bytes()


def test_sizes_are_those_of_the_source(object_file: bytes) -> None:
    """The reward rests on these numbers."""
    sizes = {section.name: section.size for section in read_sections(object_file)}
    assert (sizes[".rodata"], sizes[".data"], sizes[".bss"]) == (4, 4, 200)
    assert sizes[".text"] > 0
    assert code_bytes(sizes) == sizes[".text"] + 8


def test_sizes_agree_with_readelf(object_file: bytes, tmp_path: Path) -> None:
    """A second reader, of other authors, sees the same sections."""
    if shutil.which("readelf") is None:
        pytest.skip("needs readelf: apt-get install binutils")
    (tmp_path / "x.o").write_bytes(object_file)
    command = ["readelf", "--sections", "--wide", "x.o"]
    text = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    rows = [line.partition("]")[2].split() for line in text.splitlines() if "[" in line]
    theirs = {row[0]: int(row[4], 16) for row in rows if row[:1] and row[0].startswith(".")}
    ours = {section.name: section.size for section in read_sections(object_file) if section.name}
    assert ours == theirs


def test_sections_of_functions_count_as_text() -> None:
    """Moving code to .text.startup saves nothing; unwind tables are not counted."""
    sizes = {".text": 10, ".text.startup": 5, ".rodata.str1.1": 3, ".eh_frame": 99, ".textual": 7}
    assert code_bytes(sizes) == 18


def test_a_truncated_file_is_refused_at_every_length(object_file: bytes) -> None:
    """A compiler killed while writing leaves such files."""
    for length in range(len(object_file)):
        with pytest.raises(ElfError):
            read_sections(object_file[:length])


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (0x28, struct.pack("<Q", 2**63)),  # the section table lies outside
        (0x3A, struct.pack("<H", 7)),  # section headers of another size
        (0x3C, struct.pack("<H", 65535)),  # more sections than the file has room for
        (0x3E, struct.pack("<H", 65000)),  # the section of names does not exist
        (0x04, b"\x09"),  # neither 32 nor 64 bits
        (0x05, b"\x00"),  # neither byte order
        (0x00, b"\x7fELG"),
    ],
)
def test_a_header_that_lies_is_refused(object_file: bytes, offset: int, value: bytes) -> None:
    """Every offset and count in the file is checked before it is followed."""
    damaged = bytearray(object_file)
    damaged[offset : offset + len(value)] = value
    with pytest.raises(ElfError):
        read_sections(bytes(damaged))


def test_the_number_of_sections_may_stand_in_the_first_header(object_file: bytes) -> None:
    """Objects of more than 65,279 sections (-ffunction-sections) are read too."""
    table, count, names = (
        struct.unpack_from("<Q", object_file, 0x28)[0],
        *struct.unpack_from("<HH", object_file, 0x3C),
    )
    large = bytearray(object_file)
    struct.pack_into("<HH", large, 0x3C, 0, 0xFFFF)
    struct.pack_into("<Q", large, table + 0x20, count)
    struct.pack_into("<I", large, table + 0x28, names)
    ours = [section.name for section in read_sections(bytes(large))]
    assert ours == [section.name for section in read_sections(object_file)]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_raises_elf_error_or_nothing(object_file: bytes, data: st.DataObject) -> None:
    """No damage makes the reader raise anything else or take long."""
    damaged = bytearray(object_file)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ElfError):
        read_sections(bytes(damaged))


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    """What is no ELF file is told as such."""
    with pytest.raises(ElfError):
        read_sections(noise)
