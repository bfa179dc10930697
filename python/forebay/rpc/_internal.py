"""What other packages of Forebay use of this one, but its users do not.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.rpc._codec import BY_NUMBER as BY_NUMBER
    from forebay.rpc._codec import Segments as Segments
    from forebay.rpc._codec import array_of as array_of
    from forebay.rpc._codec import by_name as by_name
    from forebay.rpc._codec import dtype_of as dtype_of
    from forebay.rpc._gather import Gather as Gather
    from forebay.rpc._gather import Message as Message
    from forebay.rpc._gather import message as message
    from forebay.rpc._reader import reader as reader
    from forebay.rpc._running import find_method as find_method
    from forebay.rpc._serve_stream import ServedStreams as ServedStreams
    from forebay.rpc._target import socket_path as socket_path
    from forebay.rpc._unanswered import no_reply as no_reply

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_codec": ("BY_NUMBER", "Segments", "array_of", "by_name", "dtype_of"),
        "_gather": ("Gather", "Message", "message"),
        "_reader": ("reader",),
        "_running": ("find_method",),
        "_serve_stream": ("ServedStreams",),
        "_target": ("socket_path",),
        "_unanswered": ("no_reply",),
    },
)
