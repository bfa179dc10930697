"""Submissions that are sent again: which request was the first one's, and whether it is the same.

The server keeps which request has which key, also past its end and past a restart. Here is what a
gateway must know besides: which keys are under way, and what the latest submissions were. For one
that is not among them (the gateway was restarted meanwhile), the arguments that the server kept
are compared.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final, NamedTuple

from forebay.gateway.http.limits import KEY_CHARS_MAX
from forebay.gateway.problems import Problem

__all__ = ["Idempotency", "checked_key", "mismatch", "scoped_key"]

KNOWN_MAX: Final = 10_000
"""Latest submissions with a key; each takes some 200 bytes."""


class Known(NamedTuple):
    """A submission that was accepted.

    Attributes:
        id: of its request.
        digest: of its body.
    """

    id: str
    digest: bytes


class Idempotency:
    """The keys of one gateway. Loop affinity: the gateway's."""

    def __init__(self) -> None:
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
            Problem: it is, and was submitted with another body.
        """
        known = self._known.get(scoped)
        if known is None or known.id != id_:  # or it was pruned, and the key is free again
            return False
        if known.digest != digest:
            raise mismatch(id_)
        return True

    def note(self, scoped: str, id_: str, digest: bytes) -> None:
        """A request was accepted with this key and this body."""
        self._known[scoped] = Known(id_, digest)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)


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
