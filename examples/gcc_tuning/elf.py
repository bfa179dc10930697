"""Section sizes of an ELF file, read without binutils.

Every offset and count comes from the file, so each is checked against the file's length before
it is followed; a damaged or hostile file raises `ElfError` and never anything else.
Source: the System V ABI, chapter 4 (object files), and elf(5).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["ElfError", "Section", "code_bytes", "read_sections"]

_SHT_NOBITS = 8
_SHN_XINDEX = 0xFFFF
# ident, type..version, then entry/phoff/shoff, flags, ehsize, phentsize, phnum, shentsize,
# shnum, shstrndx; and a section header, each for 32 and 64 bits.
_FILE_HEADER = {1: "16sHHIIIIIHHHHHH", 2: "16sHHIQQQIHHHHHH"}
_SECTION_HEADER = {1: "IIIIIIIIII", 2: "IIQQQQIIQQ"}
# What counts as the program's size: code, constants and initialised data.
# Unwind tables, notes and symbols are left out: dropping them makes no better code.
_COUNTED = (".text", ".rodata", ".data")


class ElfError(ValueError):
    """The bytes are no well-formed ELF file."""


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its name, size in memory in bytes, and whether the file holds its bytes."""

    name: str
    size: int
    in_file: bool


def read_sections(data: bytes) -> tuple[Section, ...]:
    """Read the sections of an ELF file in the order of its section table.

    Args:
        data: the whole file.

    Raises:
        ElfError: the file is truncated, inconsistent or no ELF file.

    Cost: O(sections).
    """
    try:
        return _read(data)
    except struct.error as error:
        raise ElfError(f"truncated ELF file of {len(data)} bytes: {error}") from None


def code_bytes(sections: dict[str, int]) -> int:
    """Add up code, constants and initialised data, in bytes.

    Args:
        sections: section name to size; `.text.startup` counts as `.text`, and so on.
    """
    return sum(
        size
        for name, size in sections.items()
        if any(name == kind or name.startswith(kind + ".") for kind in _COUNTED)
    )


def _read(data: bytes) -> tuple[Section, ...]:
    order, bits = _identify(data)
    fields = struct.unpack_from(order + _FILE_HEADER[bits], data)
    table, entry_size, count, names_index = fields[6], fields[11], fields[12], fields[13]
    layout = struct.Struct(order + _SECTION_HEADER[bits])
    if table == 0:
        return ()
    if entry_size != layout.size:
        raise ElfError(f"section headers of {entry_size} bytes, expected {layout.size}")
    if table + entry_size > len(data):
        raise ElfError(f"the section headers at {table} leave the file of {len(data)} bytes")
    first = layout.unpack_from(data, table)
    # Large files keep the true numbers in the first, otherwise empty, section header.
    count = count or first[5]
    names_index = first[6] if names_index == _SHN_XINDEX else names_index
    if table + count * entry_size > len(data):
        raise ElfError(f"{count} section headers at {table} leave the file of {len(data)} bytes")
    if names_index >= count:
        raise ElfError(f"the section of names is number {names_index} of {count}")
    headers = [layout.unpack_from(data, table + i * entry_size) for i in range(count)]
    names = _content(data, headers[names_index])
    return tuple(_section(data, header, names) for header in headers)


def _identify(data: bytes) -> tuple[str, int]:
    if data[:4] != b"\x7fELF":
        raise ElfError("no ELF file: the magic number is missing")
    if len(data) < 16 or data[4] not in (1, 2) or data[5] not in (1, 2):
        raise ElfError("unknown ELF class or byte order")
    return "<" if data[5] == 1 else ">", data[4]


def _section(data: bytes, header: tuple[int, ...], names: bytes) -> Section:
    in_file = header[1] != _SHT_NOBITS
    if in_file and header[1] != 0:
        _content(data, header)
    return Section(_name(names, header[0]), header[5] if header[1] else 0, in_file)


def _content(data: bytes, header: tuple[int, ...]) -> bytes:
    offset, size = header[4], header[5]
    if header[1] == _SHT_NOBITS or offset + size > len(data):
        raise ElfError(
            f"a section of {size} bytes at {offset} leaves the file of {len(data)} bytes"
        )
    return data[offset : offset + size]


def _name(names: bytes, offset: int) -> str:
    end = names.find(b"\0", offset)
    if offset >= len(names) or end < 0:
        raise ElfError(f"a section's name at {offset} leaves the table of {len(names)} bytes")
    return names[offset:end].decode("utf-8", "backslashreplace")
