"""How much there is to serialize in a message, found without visiting all of it.

`distributed` estimates the size of every message before it serializes it, which costs several times
what serializing a short one does (https://github.com/dask/distributed/issues/1626).
Only payloads can be large, and they are wrapped: looking for the wrappers is enough.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from distributed.protocol.serialize import Serialize, ToPickle
from distributed.sizeof import safe_sizeof

__all__ = ["outweighs"]

VISITS_MAX = 256
"""Objects examined in one message. What follows them counts as light."""

UNKNOWN = -1


def outweighs(message: Any, threshold: int) -> bool:
    """Whether serializing a message touches more than `threshold` bytes, or may do so."""
    weight, visits = 0, 0
    open_objects = [message]
    while open_objects and visits < VISITS_MAX:
        visits += 1
        found = open_objects.pop()
        kind = type(found)
        if kind is dict:
            open_objects.extend(islice(found.values(), VISITS_MAX))
        elif kind is list or kind is tuple:
            open_objects.extend(islice(found, VISITS_MAX))
        elif kind is bytes or kind is str:
            weight += len(found)
        elif kind is Serialize or kind is ToPickle:
            size = safe_sizeof(found.data, default_size=UNKNOWN)
            if size == UNKNOWN:
                return True
            weight += size
    return weight > threshold
