"""Limits of the HTTP of one client."""

from __future__ import annotations

from typing import Final

READ_BYTES: Final = 64 << 10
"""Received at once."""

SHORT_MAX: Final = 32
"""Connections with calls that are answered at once; further calls wait for one."""

WAITING_MAX: Final = 64
"""Connections that wait for ends or follow events. A gateway allows 100 streams of one token."""

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

RESULT_BYTES_MAX: Final = 4 << 30
"""Of a result."""
