"""Limits of the HTTP of one client."""

from __future__ import annotations

from typing import Final

READ_BYTES: Final = 64 << 10
"""Received at once."""

CONNECTIONS_MAX: Final = {"call": 32, "wait": 64, "stream": 64}
"""Connections at once by what they do: calls that are answered at once, waits for ends, and
streams, of which a gateway allows 100 of one token. Further ones wait for a connection."""

TURN_S: Final = 86_400.0
"""A wait for an end that has no limit itself waits so long for a connection, behind other waits."""

IDLE_S: Final = 60.0
"""An idle connection is not used after so long: a gateway closes it after 75 s."""

IDLE_MAX: Final = 32
"""Idle connections that are kept."""

WAIT_S: Final = 30.0
"""The longest that a gateway is asked to wait for an end; a gateway allows 60 s."""

WAIT_CROWDED_S: Final = 2.0
"""Where others wait for a connection to wait on."""

GRACE_S: Final = 10.0
"""Beyond what it was asked to wait, a gateway may take so long to answer."""

SILENCE_S: Final = 45.0
"""A stream without a byte for so long is broken: a gateway sends a comment every 15 s."""

PAUSE_S: Final = (0.02, 0.1, 0.25, 0.5, 1.0)
"""Before each attempt to reach a gateway that is gone; the last one repeats."""

ANSWER_BYTES_MAX: Final = 64 << 20
"""Of an answer that is no result."""

EVENT_CHARS_MAX: Final = 16 << 20
"""Of one event of a stream."""

ITEM_CHARS_MAX: Final = 96 << 20
"""Of an event that is an item, of which a server takes at most 64 MiB: in base64, 86 MiB."""

RESULT_BYTES_MAX: Final = 4 << 30
"""Of a result."""
