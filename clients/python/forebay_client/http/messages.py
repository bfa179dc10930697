"""A request of HTTP and its answer, as the rest of this client has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from forebay_client.http.limits import ANSWER_BYTES_MAX, EVENT_CHARS_MAX

__all__ = ["Answer", "Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        method: of HTTP.
        path: quoted, with its query.
        fields: of the head, beside those that every request has.
        body: bytes.
        repeatable: whether doing it twice is as doing it once.
        kind: which of `CONNECTIONS_MAX` it counts among.
        wait: seconds that the gateway may take on purpose.
        answer_bytes_max: of the answer's body.
        event_chars_max: of one event, where the answer is a stream.
    """

    method: str
    path: str
    fields: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    repeatable: bool = True
    kind: Literal["call", "wait", "stream"] = "call"
    wait: float = 0.0
    answer_bytes_max: int = ANSWER_BYTES_MAX
    event_chars_max: int = EVENT_CHARS_MAX


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; the names of its fields are in lower case."""

    status: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes | bytearray = b""

    @property
    def media(self) -> str:
        """The type of the body, without parameters."""
        return self.fields.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_problem(self) -> bool:
        """Whether it says why not."""
        return self.status >= 400
