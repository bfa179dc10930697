"""The calls and streams of one client: its connections, kept and opened anew, and who it is."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, Final, TypeVar

from forebay_client.errors import BrokenError, ClosedError, DeadlineError, ProtocolError
from forebay_client.http.hidden import Hidden
from forebay_client.http.limits import CONNECTIONS_MAX, IDLE_MAX, IDLE_S, SILENCE_S
from forebay_client.http.link import Link, open_link
from forebay_client.http.messages import Answer, Call
from forebay_client.http.patience import Patience
from forebay_client.http.route import Route
from forebay_client.http.server_events import EventReader, ServerEvent
from forebay_client.http.steps import Item, Procedure, Step, Stream
from forebay_client.problems import error_of

__all__ = ["Session"]

T = TypeVar("T")

BEGUN: Final[Any] = None
"""The first item of a stream."""

EVENTS: Final = "text/event-stream"


class Session:
    """Procedures that make one call, or follow one stream.

    Threads: any. Forks: a child does not use its parent's connections.

    Attributes:
        name: of the gateway, for messages.
    """

    def __init__(self, route: Route, authorization: Hidden | None) -> None:
        self.name = route.url
        self._route = route
        self._authorization = authorization
        self._idle: deque[Link] = deque()
        self._pid = os.getpid()
        self._reached = False
        self._closed = False
        self._counting = threading.Lock()
        self._counts: Counter[str] = Counter()

    def ask(self, call: Call, timeout: float, until: float | None = None) -> Procedure[Answer]:
        """Make a call until there is an answer to keep.

        It is made again where the connection breaks and twice is as good as once, and where the
        gateway asks for that.

        Args:
            call: which.
            timeout: seconds for an answer, and for a gateway that went away to come back.
            until: on the monotonic clock, when it is given up in any case.

        Raises:
            BrokenError: the gateway is not there. DeadlineError: no answer came in time.
            ClosedError.
        """
        patience = Patience(timeout, until)
        while True:
            try:
                answer = yield from self._exchange(call, patience)
            except DeadlineError as error:
                told = f"{error}, which is {timeout:g} s; give the client a longer timeout"
                raise DeadlineError(told, timeout=timeout) from None
            except BrokenError as error:
                self._check_open()
                pause = patience.after_break(error, call, reached=self._reached)
            else:
                again = patience.after_answer(answer, call)
                if again is None:
                    return answer
                pause = again
            seconds = pause
            yield lambda io, seconds=seconds: io.pause(seconds)  # type: ignore[misc]

    def follow(
        self,
        call: Call,
        of: Callable[[ServerEvent], T],
        timeout: float,
        last: str = "",
        *,
        numbered: bool = False,
    ) -> Stream[T]:
        """The events of a stream, resumed behind the last one where the connection breaks.

        It ends with the event `end`, which it does not give. Its first item is None: the gateway
        has begun to listen for it, and the id behind which it begins is known.

        Args:
            call: a GET.
            of: makes an item of an event.
            timeout: as of `ask`.
            last: id behind which it begins; empty: as the path says.
            numbered: the first event says the id behind which it begins.

        Raises:
            as `ask`; and what the gateway refuses it with.
        """
        patience = Patience(timeout, None)
        place = _Place(last, numbered=numbered)
        while True:
            refusal = None
            try:
                refusal = yield from self._events(call, of, place, patience)
                if refusal is None:
                    return
                again = patience.after_answer(refusal, call)
            except BrokenError as error:
                self._check_open()
                again = patience.after_break(error, call, reached=self._reached)
            if again is None:
                assert refusal is not None
                raise error_of(refusal, self.name)
            pause = again
            yield lambda io, pause=pause: io.pause(pause)  # type: ignore[misc]

    def close(self) -> None:
        """Close what is idle; calls under way end by themselves. Idempotent."""
        self._closed = True
        self.close_idle()

    def _exchange(self, call: Call, patience: Patience) -> Procedure[Answer]:
        with _Lease(self, call) as lease:
            yield from lease.enter(patience.turn_end(call))
            answer = yield from lease.begin(patience)
            answer = yield from lease.whole(answer)
            lease.keep()
        return answer

    def _events(
        self, call: Call, of: Callable[[ServerEvent], T], place: _Place, patience: Patience
    ) -> Generator[Step | Item[T], Any, Answer | None]:
        """One attempt; what the gateway refused it with, or None at the end of the stream."""
        fields = (*call.fields, ("Accept", EVENTS), *place.fields())
        attempt = replace(call, fields=fields, kind="stream")
        with _Lease(self, attempt) as lease:
            yield from lease.enter(patience.turn_end(attempt))
            answer = yield from lease.begin(patience)
            if answer.status != 200 or answer.media != EVENTS:
                answer = yield from lease.whole(answer)
                lease.keep()
                return _refusing(answer, self.name)
            if place.begin(at_head=True):
                yield Item(BEGUN)
            reader = EventReader(self.name, call.event_chars_max)
            while (piece := (yield from lease.piece(SILENCE_S))) is not None:
                patience.heard()  # by a comment too: a stream may have no events for hours
                for event in reader.feed(piece):
                    if event.kind == "end":
                        return None
                    place.last = event.id or place.last
                    if place.begin():
                        yield Item(BEGUN)
                    patience.progressed()
                    if event.kind != "begin":  # which says the number of now
                        yield Item(of(event))
        raise BrokenError(f"{self.name} ended a stream that has not ended")

    @property
    def crowded(self) -> bool:
        """Whether waits for ends wait for a connection."""
        return self._counts["wait"] >= CONNECTIONS_MAX["wait"]

    # For `_Lease`.

    def count(self, kind: str, change: int) -> None:
        """Calls of a kind have begun, or ended."""
        with self._counting:
            self._counts[kind] += change

    def take(self) -> Link | None:
        """An idle connection that should still be open."""
        if self._pid != os.getpid():  # a child: the parent goes on with these
            self._idle, self._pid = deque(), os.getpid()
        while (link := self._next_idle()) is not None:
            if time.monotonic() - (link.used_at or 0.0) < IDLE_S:
                return link
            link.close()
        return None

    def close_idle(self) -> None:
        """Close the idle connections: where one has broken, the gateway has left them all."""
        while (link := self._next_idle()) is not None:
            link.close()

    def reached(self) -> None:
        """The gateway has answered, so that it is waited for where it goes away."""
        self._reached = True

    def give_back(self, link: Link) -> None:
        """Keep a connection for the next call."""
        if self._closed or len(self._idle) >= IDLE_MAX:
            link.close()
        else:
            self._idle.append(link)

    def open(self, until: float) -> Procedure[Link]:
        """Another connection."""
        self._check_open()
        return (yield from open_link(self._route, until))

    def _next_idle(self) -> Link | None:
        try:
            return self._idle.pop()
        except IndexError:  # also where another thread has taken the last one
            return None

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(
                f"the client of {self.name} is closed; make another one, and find your requests by"
                " client.get(id)"
            )

    @property
    def authorization(self) -> Hidden | None:
        """The value of the field."""
        return self._authorization


class _Place:
    """Where a stream is: whether it has begun, and the id of its last event."""

    def __init__(self, last: str, *, numbered: bool) -> None:
        self._begun = False
        self._numbered = numbered
        self.last = last

    def begin(self, *, at_head: bool = False) -> bool:
        """Whether it begins with this; `at_head`: no event of it was read yet."""
        begins = not self._begun and not (at_head and self._numbered)
        self._begun = self._begun or begins
        return begins

    def fields(self) -> tuple[tuple[str, str], ...]:
        return (("Last-Event-ID", self.last),) if self.last else ()


class _Lease:
    """One connection for one exchange: kept at its end, or closed where that was not reached."""

    def __init__(self, session: Session, call: Call) -> None:
        self._session = session
        self._call = call
        self._permit: Any = None
        self._link: Link | None = None
        self._until = 0.0

    def enter(self, until: float) -> Procedure[None]:
        """Wait until one more connection may be in use."""
        kind = self._call.kind
        self._permit = yield lambda io: io.enter(kind, until)

    def begin(self, patience: Patience) -> Procedure[Answer]:
        """Send the call and read the head of its answer.

        An idle connection may be closed by the other side at any time. So a call that must not be
        made twice has a new one; another call gets a new one at once where an idle one breaks.
        """
        self._until = patience.attempt_end(self._call)
        self._link = self._session.take() if self._call.repeatable else None
        if self._link is not None:
            try:
                return (yield from self._head(self._link))
            except ProtocolError:
                raise
            except BrokenError:
                self._link.close()
                self._session.close_idle()
                self._until = patience.attempt_end(self._call)
        self._link = yield from self._session.open(self._until)
        return (yield from self._head(self._link))

    def whole(self, head: Answer) -> Procedure[Answer]:
        """Read the body of an answer."""
        assert self._link is not None
        body = yield from self._link.body(self._call.answer_bytes_max, self._until)
        return replace(head, body=body)

    def piece(self, within: float) -> Procedure[bytes | None]:
        """Read a piece of the body; None: it is whole.

        Raises:
            BrokenError: nothing came for so many seconds, or the connection ended.
        """
        assert self._link is not None
        try:
            return (yield from self._link.piece(time.monotonic() + within))
        except DeadlineError as error:
            raise BrokenError(str(error)) from None

    def keep(self) -> None:
        """The exchange has ended: keep the connection where it can have another one."""
        assert self._link is not None
        if self._link.recycle():
            link, self._link = self._link, None
            self._session.give_back(link)

    def _head(self, link: Link) -> Procedure[Answer]:
        yield from link.send(self._call, self._session.authorization, self._until)
        answer = yield from link.head(self._until)
        self._session.reached()
        return answer

    def __enter__(self) -> _Lease:
        self._session.count(self._call.kind, 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._session.count(self._call.kind, -1)
        if self._link is not None:
            self._link.close()
        if self._permit is not None:
            self._permit.release()


def _refusing(answer: Answer, name: str) -> Answer:
    """An answer that is no stream.

    Raises:
        ProtocolError: it refuses nothing.
    """
    if not answer.is_problem:
        raise ProtocolError(f"{name} answered {answer.status}, and no stream of events", peer=name)
    return answer
