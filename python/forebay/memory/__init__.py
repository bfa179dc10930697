"""Memory that several processes can use without copying: arenas, buffers, references.

An `Arena` hands out `Buffer`s and numpy arrays in memory that other processes may map for reading.
A `Window` is such a map of another process's memory.
A `Reference` names a block in a message; after the block is freed, it is always refused.
"""

from __future__ import annotations

from forebay._core import Buffer, Window
from forebay.memory._arena import Arena
from forebay.memory._reference import Reference
from forebay.memory._window import open_window

__all__ = ["Arena", "Buffer", "Reference", "Window", "open_window"]
