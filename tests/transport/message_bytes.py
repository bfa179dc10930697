"""Messages as bytes, for peers that are written by hand."""

from __future__ import annotations

import struct
from pathlib import Path

MESSAGE, TOKEN = 8, 10


def preface(*, frame_bytes_max: int = 1 << 30, segments_max: int = 65_535) -> bytes:
    """What each direction starts with."""
    return b"FBAY" + struct.pack("<HBBQQHHI", 1, 3, 0, 0, frame_bytes_max, segments_max, 0, 0)


def header(kind: int, *, head: int = 0, segments: int = 0) -> bytes:
    """The fixed part of a frame."""
    return struct.pack("<IBBHQII", head, kind, 0, segments, 0, 0xFFFFFFFF, 0)


def token(text: bytes) -> bytes:
    """What lets its sender in."""
    return header(TOKEN, head=len(text)) + text


def announced(*lengths: int) -> bytes:
    """The beginning of a message of frames of these lengths, without the frames."""
    return header(MESSAGE, segments=len(lengths)) + struct.pack(f"<{len(lengths)}Q", *lengths)


def message(*frames: bytes) -> bytes:
    """A whole message."""
    return announced(*map(len, frames)) + b"".join(frames)


def resident_bytes() -> int:
    """Memory of this process that is resident now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
