"""What an operation of a batch does, as the field `kind` of `forebay.blockio.OPERATION` says it."""

from __future__ import annotations

from typing import Final

__all__ = ["FDATASYNC", "FSYNC", "READ", "WRITE"]

READ: Final = 0
"""Read from the file into the buffer."""

WRITE: Final = 1
"""Write from the buffer to the file."""

FSYNC: Final = 2
"""Have the device keep data and metadata, after the operations before it."""

FDATASYNC: Final = 3
"""As `FSYNC`, but only the metadata that reading needs."""
