"""The files of the dashboard's page, read into a table when the first of them is asked for.

A name that is not in the table is served to nobody, so no name leads out of the folder. All are
read at once: a package that is replaced while the gateway runs does not mix two versions.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["INDEX", "PageFile", "page_files"]

INDEX: Final = "index.html"

FOLDER: Final = Path(__file__).with_name("assets")

TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".ico": b"image/x-icon",
    ".js": b"text/javascript; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".woff2": b"font/woff2",
}
"""By suffix; a file with another one is not served."""

GZIP: Final = 31
"""`wbits` of zlib for the form that browsers call gzip."""


class PageFile(NamedTuple):
    """One file.

    Attributes:
        content: as it is.
        packed: the same in gzip; None where that is no shorter.
        tag: what the answer is known by as long as the content is the same, for `If-None-Match`.
            It is a weak one (RFC 9110, section 8.8.1): the packed content has it too.
        media_type: what it is.
    """

    content: bytes
    packed: bytes | None
    tag: bytes
    media_type: bytes


@functools.cache
def page_files() -> Mapping[str, PageFile]:
    """All of them, by the names that links use.

    Cost: 10 ms for the first call, and nothing before it.
    """
    return files_below(FOLDER)


def files_below(folder: Path) -> dict[str, PageFile]:
    """The files of a folder and of those in it, by their paths from there."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in TYPES and path.is_file())
    return {path.relative_to(folder).as_posix(): _read(path) for path in found}


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    packed = zlib.compress(content, 9, wbits=GZIP)
    tag = b'W/"%b"' % hashlib.sha256(content).hexdigest()[:24].encode()
    shorter = packed if len(packed) < len(content) else None
    return PageFile(content, shorter, tag, TYPES[path.suffix])
