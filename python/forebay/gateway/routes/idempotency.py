"""Submissions that are sent again: which request was the first one's, and whether it is the same.

The server keeps which request has which key, also past its end and past a restart. Here is what a
gateway must know besides: which keys are under way, and what the latest submissions were. For one
that is not among them (the gateway was restarted meanwhile), the arguments that the server kept
are compared.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from forebay.gateway.asgi.ids import made_ms
from forebay.gateway.http.limits import KEY_CHARS_MAX
from forebay.gateway.problems import Problem

__all__ = [
    "Idempotency",
    "arguments_digest",
    "checked_key",
    "mismatch",
    "now_ms",
    "same_arguments",
    "scoped_key",
]

KNOWN_MAX: Final = 10_000
"""Latest submissions with a key; each takes some 200 bytes."""

_HIDDEN: Final = msgspec.msgpack.encode("<secret>")
"""What the server shows in the place of a secret argument."""

RECENT_MS: Final = 1000
"""A request that was made so long before its submission began is another one's. A shorter time may
be the server's clock, which stands still for a turn; all that are as recent are known here."""


class Known(NamedTuple):
    """A submission that was accepted.

    Attributes:
        id: of its request.
        digest: of its arguments.
    """

    id: str
    digest: bytes


class Idempotency:
    """The keys of one gateway. Loop affinity: the gateway's."""

    def __init__(self) -> None:
        self._started_ms = now_ms()
        self._under_way: set[str] = set()
        self._known: OrderedDict[str, Known] = OrderedDict()

    def begin(self, scoped: str) -> None:
        """Begin a submission; `end` follows.

        Raises:
            Problem: another one with its key is under way.
        """
        if scoped in self._under_way:
            raise Problem(
                409,
                "idempotency_in_progress",
                "the first submission with this Idempotency-Key is not on disk yet",
                object="Idempotency-Key",
                next="send it again",
                headers=[(b"retry-after", b"1")],
            )
        self._under_way.add(scoped)

    def end(self, scoped: str) -> None:
        """It was accepted, or refused."""
        self._under_way.discard(scoped)

    def known(self, scoped: str, id_: str, digest: bytes) -> bool:
        """Whether a request is known as that of this key.

        Raises:
            Problem: it is, and was submitted with other arguments.
        """
        known = self._known.get(scoped)
        if known is None or known.id != id_:  # or it was pruned, and the key is free again
            return False
        if known.digest != digest:
            raise mismatch(id_)
        return True

    def is_from_before(self, id_: str, began_ms: int) -> bool:
        """Whether a request that is not known here was there before its submission.

        Args:
            id_: of the request that has the key.
            began_ms: when the submission was sent.
        """
        return made_ms(id_) < max(self._started_ms, began_ms - RECENT_MS)

    def note(self, scoped: str, id_: str, digest: bytes) -> None:
        """A request was accepted with this key and these arguments."""
        self._known[scoped] = Known(id_, digest)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def mismatch(id_: str) -> Problem:
    """The refusal of a submission whose key is that of another one."""
    return Problem(
        422,
        "idempotency_mismatch",
        f"this Idempotency-Key is that of request {id_}, which has other arguments",
        object="Idempotency-Key",
        value=id_,
        next="use another key",
    )


def arguments_digest(blob: bytes) -> bytes:
    """Of arguments, whatever order they are in; unlike what the server shows, with secret ones."""
    digest = hashlib.sha256()
    for name, value in sorted(_by_name(blob).items()):
        text = name.encode()
        digest.update(b"%d:%b%d:" % (len(text), text, len(value)))
        digest.update(value)
    return digest.digest()


def same_arguments(kept: bytes, given: bytes) -> bool:
    """Whether arguments are those that the server kept; secret ones, which it hides, may differ."""
    if kept == given:
        return True
    before, now = _by_name(kept), _by_name(given)
    return before.keys() == now.keys() and all(
        before[name] in (now[name], _HIDDEN) for name in before
    )


def _by_name(blob: bytes) -> dict[str, bytes]:
    given = msgspec.msgpack.decode(blob or b"\x80", type=dict[str, msgspec.Raw])
    return {name: bytes(value) for name, value in given.items()}


def checked_key(text: str) -> str:
    """A key as it was given.

    Raises:
        Problem: it is empty, too long, or has other than printable characters.
    """
    if not 0 < len(text) <= KEY_CHARS_MAX or not (text.isascii() and text.isprintable()):
        raise Problem(
            422,
            "invalid",
            f"an Idempotency-Key has 1 to {KEY_CHARS_MAX} printable ASCII characters",
            object="Idempotency-Key",
            limit=KEY_CHARS_MAX,
            value=len(text),
        )
    return text


def scoped_key(token: str, name: str, key: str) -> str:
    """The key as the server has it: that of another token, or another request, is another one."""
    whole = f"{len(token)}:{token}{len(name)}:{name}{key}"
    return hashlib.sha256(whole.encode()).hexdigest()
