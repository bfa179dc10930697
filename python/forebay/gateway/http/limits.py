"""What a connection and its requests may take, in time and in bytes."""

from __future__ import annotations

from typing import Final

HEADERS_S: Final = 10.0
"""From the first byte of a request to the end of its headers, and until there is a first one."""

BODY_S: Final = 30.0
"""Without a byte of a body that is not complete."""

IDLE_S: Final = 75.0
"""Without a request; longer than the 60 s of most proxies, so that they close first."""

UNREAD_S: Final = 30.0
"""Without a byte read by a client that has some to read."""

LINGER_S: Final = 2.0
"""After a refusal in the middle of a request: closed at once, the client would not read it."""

HANDSHAKE_S: Final = 10.0
"""Of TLS."""

ANSWER_S: Final = 30.0
"""For the server to answer a call."""

HEADER_BYTES_MAX: Final = 64 << 10
HEADERS_MAX: Final = 100
PATH_BYTES_MAX: Final = 16 << 10
"""Path and query together."""

PIPELINED_MAX: Final = 16
"""Requests of one connection that wait for the one before; then it is not read."""

PIECE_BYTES: Final = 1024
"""Of what was received, between two looks at the number of pipelined requests."""

BODY_PIECE_BYTES: Final = 16 << 10
"""The same within a body."""

BODIES_MAX: Final = 4
"""Bodies of `max_body_bytes` that may be under way in all; a further one is answered 503."""

UNREAD_BYTES: Final = 256 << 10
"""Of an answer, in memory for a client that does not read it; then its handler waits."""

STREAMS_MAX: Final = 100
"""Of one token."""

COMMENT_S: Final = 15.0
"""Between two signs of life of a stream."""

WAIT_S_MAX: Final = 60.0
"""Of `?wait` and `Prefer: wait`."""

BATCH_MAX: Final = 1000
PAGE_MAX: Final = 1000
LOGIN_BYTES_MAX: Final = 1024
"""Of a body that has a token alone."""

KEY_CHARS_MAX: Final = 255
"""Of an `Idempotency-Key`."""
