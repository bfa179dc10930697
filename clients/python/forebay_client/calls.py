"""What a client asks a gateway, as procedures without I/O: both clients run the same ones."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from forebay_client.errors import (
    BrokenError,
    ConfigError,
    DeadlineError,
    Error,
    ProtocolError,
)
from forebay_client.http.limits import (
    GRACE_S,
    ITEM_CHARS_MAX,
    RESULT_BYTES_MAX,
    WAIT_CROWDED_S,
    WAIT_S,
)
from forebay_client.http.messages import Answer, Call
from forebay_client.http.server_events import ServerEvent
from forebay_client.http.session import Session
from forebay_client.http.steps import Procedure, Stream
from forebay_client.problems import (
    FAILURES,
    IN_PROGRESS,
    error_of,
    problem_error,
    problem_of,
    result_error,
)
from forebay_client.submission import Submission
from forebay_client.values.codec import MEDIA, decode, encode_map

__all__ = ["Calls", "End"]

BATCH_MAX: Final = 1000
BATCH_BYTES_MAX: Final = 8 << 20
PAGE_MAX: Final = 1000
AGAIN_S: Final = 1.0
"""Before what one of several submissions was refused for, and would pass, is tried again."""
LOOK_S: Final = 0.1
"""Between two looks whether a server has ended."""

PASSING: Final = (429, 503)

JSON: Final = "application/json"
TOP_REQUESTS: Final = 50

Rows = list[dict[str, Any]]


class End(NamedTuple):
    """How a request ended.

    Attributes:
        value: its result, where it succeeded.
        error: why there is none.
    """

    status: str
    value: Any
    error: Error | None


class Calls:
    """The calls of one client.

    Args:
        session: of the client.
        timeout: seconds for an answer, and for a gateway that went away to come back.
    """

    def __init__(self, session: Session, timeout: float) -> None:
        self._session = session
        self._timeout = timeout

    def within(self, timeout: float | None) -> Calls:
        """The same calls with another timeout; None: with the same."""
        return self if timeout is None else Calls(self._session, timeout)

    # Submitting.

    def submit(self, one: Submission) -> Procedure[str]:
        """Submit a request; its id, once it is on disk. It is never there twice."""
        options = [(name, it) for name, value in one.options.items() for it in _texts(value)]
        path = f"/v1/requests/{quote(one.name, safe='')}{_query(options)}"
        fields: tuple[tuple[str, str], ...] = (
            ("Content-Type", MEDIA),
            ("Idempotency-Key", one.key),
        )
        if one.trace is not None:
            fields = (*fields, ("traceparent", one.trace))
        accepted = yield from self._ask(Call("POST", path, fields, one.arguments))
        if "id" not in accepted:
            raise _no_gateway(self._session.name, "its id is not in it")
        return str(accepted["id"])

    def submit_all(self, some: Sequence[Submission]) -> Procedure[list[str | Error]]:
        """Submit several requests; for each its id, or why it was refused."""
        if len(some) == 1:
            return [(yield from self._outcome(some[0]))]
        results: dict[int, str | Error] = {}
        for batch in _batches(some):
            results |= yield from self._batch({at: some[at] for at in batch})
        for at, one in enumerate(some):
            if at not in results:
                results[at] = yield from self._outcome(one)
        return [results[at] for at in range(len(some))]

    # About one request.

    def end(self, id_: str, name: str, type: Any, timeout: float | None) -> Procedure[End]:
        """Wait for the end of a request.

        Raises:
            DeadlineError: `timeout` ran out. BrokenError: the gateway did not come back in time.
            ConfigError: there is no such request.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                answer = yield from self._session.ask(
                    _end_call(id_, until, crowded=self._session.crowded), self._timeout, until
                )
            except (BrokenError, DeadlineError):
                if until is None or time.monotonic() < until:
                    raise
                raise _late(id_ or name, timeout) from None
            if answer.status == 200:
                what = f"request {name or 'of another program'}"
                return End("succeeded", decode(answer.body, type, what), None)
            problem = problem_of(answer)
            if problem.get("code") == "not_ended":
                if until is not None and time.monotonic() >= until:
                    raise _late(id_ or name, timeout)
            elif answer.status == 422 and problem.get("code") in FAILURES:
                status = (yield from self.get(id_))["status"]
                return End(status, None, result_error(id_, problem))
            elif answer.status == 410:  # it was removed before it was read
                return End("succeeded", None, error_of(answer, self._session.name))
            elif until is not None and time.monotonic() >= until and answer.status in PASSING:
                raise _late(id_ or name, timeout)
            else:
                raise error_of(answer, self._session.name)

    def get(self, id_: str, part: str = "") -> Procedure[dict[str, Any]]:
        """What the server knows of a request; `part`: "show", "why" or "arguments"."""
        return (yield from self._ask(Call("GET", _path(id_, part))))

    def cancel(self, id_: str) -> Procedure[str]:
        """Cancel it; "now", "asked" or "ended"."""
        told = yield from self._ask(Call("POST", _path(id_, "cancel")))
        return str(told["cancelled"])

    def retry(self, ids: Iterable[str]) -> Procedure[Rows]:
        """Queue requests again; for each whether it was, or why not."""
        told = []
        for id_ in ids:
            answer = yield from self._session.ask(
                Call("POST", _path(id_, "retry"), repeatable=False), self._timeout
            )
            if answer.status == 409:
                reason = str(problem_of(answer).get("message", ""))
                told.append({"id": id_, "refused": reason.removeprefix(f"{id_}: ")})
            elif answer.is_problem:
                raise error_of(answer, self._session.name)
            else:
                told.append({"id": id_, "status": "queued"})
        return told

    def log(self, id_: str, offset: int) -> Procedure[str]:
        """What it has written so far, behind so many bytes."""
        path = _path(id_, "logs") + _query([("offset", str(offset))])
        answer = yield from self._session.ask(
            Call("GET", path, (("Accept", "text/plain"),)), self._timeout
        )
        if answer.is_problem:
            raise error_of(answer, self._session.name)
        return bytes(answer.body).decode("utf-8", "replace")

    def follow_log(self, id_: str, offset: int) -> Stream[str]:
        """What it writes, until it has ended."""
        path = _path(id_, "logs") + _query([("offset", str(offset))])
        yield from self._session.follow(Call("GET", path), _text_of, self._timeout)

    def events(self, id_: str) -> Stream[dict[str, Any]]:
        """What happens to it, until it has ended."""
        yield from self._session.follow(Call("GET", _path(id_, "events")), _event, self._timeout)

    def items(self, id_: str, query: Sequence[tuple[str, str]]) -> Stream[dict[str, Any]]:
        """What it yields: events of `ItemsFollowing`, whose query it is."""
        path = _path(id_, "items") + _query(query)
        call = Call("GET", path, event_chars_max=ITEM_CHARS_MAX)
        yield from self._session.follow(call, _event, self._timeout)

    # About all of them.

    def follow(self, filters: dict[str, Any], cursor: int | None) -> Stream[dict[str, Any]]:
        """What happens, without an end."""
        pairs = [(name, it) for name, value in filters.items() for it in _texts(value)]
        last = "" if cursor is None else str(cursor)
        call = Call("GET", "/v1/events" + _query(pairs))
        # Without a number of its own, the first event says where it begins.
        numbered = cursor is None
        yield from self._session.follow(call, _event, self._timeout, last, numbered=numbered)

    def list(self, filters: dict[str, Any], limit: int, before: str | None) -> Procedure[Rows]:
        """A list of requests, the newest first."""
        rows: Rows = []
        while limit > 0:
            pairs = [(name, it) for name, value in filters.items() for it in _texts(value)]
            pairs.append(("limit", str(min(limit, PAGE_MAX))))
            if before is not None:
                pairs.append(("cursor", before))
            page = yield from self._ask(Call("GET", "/v1/requests" + _query(pairs)))
            rows += page["requests"]
            limit -= len(page["requests"])
            before = page.get("next")
            if not before:  # with one there may be fewer than were asked for
                break
        return rows

    def prune(self, rule: dict[str, Any]) -> Procedure[dict[str, Any]]:
        """Remove ended requests."""
        return (yield from self._ask(_post("/v1/prune", rule)))

    def about(self, what: str) -> Procedure[dict[str, Any]]:
        """Of the server: "info", "manifest", "workers", "services" or "schedules"."""
        return (yield from self._ask(Call("GET", f"/v1/{what}")))

    def set_schedule(self, name: str, *, paused: bool) -> Procedure[dict[str, Any]]:
        """Let a schedule rest, or go on."""
        act = "pause" if paused else "resume"
        path = f"/v1/schedules/{quote(name, safe='')}/{act}"
        return (yield from self._ask(Call("POST", path)))

    def reload(self) -> Procedure[dict[str, Any]]:
        """Have the server load its application anew."""
        return (yield from self._ask(Call("POST", "/v1/reload", repeatable=False)))

    def cordon(self, reason: str = "", dispatches: bool = True) -> Procedure[dict[str, Any]]:
        """Have the server take no submissions."""
        return (
            yield from self._ask(_post("/v1/cordon", {"reason": reason, "dispatches": dispatches}))
        )

    def uncordon(self) -> Procedure[dict[str, Any]]:
        """Have it take them again."""
        return (yield from self._ask(_post("/v1/cordon", {"undo": True})))

    def stop(self, grace: float | None) -> Procedure[dict[str, Any]]:
        """Have the server end."""
        body = {} if grace is None else {"grace": grace}
        return (yield from self._ask(_post("/v1/stop", body, repeatable=False)))

    def top(self) -> Procedure[dict[str, Any]]:
        """Figures, workers, services, and what waits and runs."""
        info = yield from self.about("info")
        workers = yield from self.about("workers")
        services = yield from self.about("services")
        requests = yield from self.list({"status": ["queued", "running"]}, TOP_REQUESTS, None)
        return {
            "schema": 1,
            "figures": info.get("figures") or {},
            "workers": workers["workers"],
            "services": services["services"],
            "requests": requests,
        }

    def gone(self, timeout: float) -> Procedure[bool]:
        """Wait until the server that answers now has ended; whether it has."""
        until = time.monotonic() + timeout
        first = None
        while time.monotonic() < until:
            try:
                info = yield from self._ask(Call("GET", "/v1/info"), time.monotonic() + LOOK_S)
            except DeadlineError:
                continue
            except BrokenError:
                return True
            if first not in (None, info.get("started_at")):
                return True
            first = info.get("started_at")
            yield lambda io: io.pause(LOOK_S)
        return False

    def _outcome(self, one: Submission) -> Procedure[str | Error]:
        try:
            return (yield from self.submit(one))
        except Error as error:
            return error

    def _batch(self, some: dict[int, Submission]) -> Procedure[dict[int, str | Error]]:
        """Submit several in one call, and those again that were refused for a while."""
        results: dict[int, str | Error] = {}
        until = time.monotonic() + self._timeout
        while some:
            try:
                told = yield from self._ask(_batch_call(list(some.values())))
                outcomes = _answers(told, len(some), self._session.name)
            except Error as error:
                return results | dict.fromkeys(some, error)
            answers = dict(zip(some, outcomes, strict=True))
            results |= {at: _outcome_of(one) for at, one in answers.items()}
            some = {at: some[at] for at, one in answers.items() if _is_passing(one)}
            if time.monotonic() + AGAIN_S > until:
                break
            if some:
                yield lambda io: io.pause(AGAIN_S)
        return results

    def _ask(self, call: Call, until: float | None = None) -> Procedure[dict[str, Any]]:
        """The JSON that a call is answered with.

        Raises:
            what it was refused with.
        """
        answer = yield from self._session.ask(call, self._timeout, until)
        if answer.is_problem:
            raise error_of(answer, self._session.name)
        return _object_of(answer, self._session.name)


def _end_call(id_: str, until: float | None, *, crowded: bool) -> Call:
    wait = WAIT_CROWDED_S if crowded else WAIT_S
    if until is not None:
        wait = min(wait, max(0.0, until - time.monotonic()))
    path = _path(id_, "result") + _query([("wait", f"{wait:.3f}")])
    fields = (("Accept", MEDIA),)
    return Call(
        "GET", path, fields, kind="wait", wait=wait + GRACE_S, answer_bytes_max=RESULT_BYTES_MAX
    )


def _late(called: str, timeout: float | None) -> DeadlineError:
    return DeadlineError(
        f"request {called} has not ended within {timeout:g} s; it goes on: wait again, or cancel()"
        " it",
        timeout=timeout,
    )


def _batches(some: Sequence[Submission]) -> Iterable[list[int]]:
    """The places of those that one call submits: all without a span of their own."""
    batch: list[int] = []
    size = 0
    for at, one in enumerate(some):
        if one.trace is not None:
            continue
        if batch and (len(batch) >= BATCH_MAX or size + len(one.arguments) > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(at)
        size += len(one.arguments)
    if batch:
        yield batch


def _batch_call(some: list[Submission]) -> Call:
    requests = [
        encode_map(
            {"name": one.name, "options": one.options, "idempotency_key": one.key},
            {"arguments": one.arguments},
        )
        for one in some
    ]
    body = encode_map({}, {"requests": requests})
    return Call("POST", "/v1/batch", (("Content-Type", MEDIA),), body)


def _answers(told: dict[str, Any], count: int, name: str) -> list[dict[str, Any]]:
    """What a batch was answered with, for each of its submissions.

    Raises:
        ProtocolError: something else answered than a gateway.
    """
    answers = told.get("requests")
    if not isinstance(answers, list) or len(answers) != count or not all(map(_is_answer, answers)):
        raise _no_gateway(name, f"what became of {count} submissions is not in it")
    return answers


def _is_answer(one: Any) -> bool:
    return isinstance(one, dict) and ("id" in one or isinstance(one.get("error"), dict))


def _no_gateway(name: str, missing: str) -> ProtocolError:
    return ProtocolError(
        f"{name} took a submission and answered with an object of JSON, but {missing}; see whether"
        " the URL is that of a gateway",
        peer=name,
    )


def _outcome_of(one: dict[str, Any]) -> str | Error:
    return str(one["id"]) if "id" in one else problem_error(one["error"])


def _is_passing(one: dict[str, Any]) -> bool:
    """Whether a submission was refused for a while only."""
    error = one.get("error", {})
    return error.get("status") in PASSING or error.get("code") == IN_PROGRESS


def _post(path: str, members: dict[str, Any], *, repeatable: bool = True) -> Call:
    body = json.dumps(members, ensure_ascii=False, allow_nan=False).encode()
    return Call("POST", path, (("Content-Type", JSON),), body, repeatable=repeatable)


def _path(id_: str, part: str = "") -> str:
    path = f"/v1/requests/{quote(id_, safe='@')}"
    return f"{path}/{part}" if part else path


def _query(pairs: Sequence[tuple[str, str]]) -> str:
    return f"?{urlencode(pairs)}" if pairs else ""


def _texts(value: Any) -> list[str]:
    """A value of a query as text: each of several, a whole number without a fraction."""
    if isinstance(value, list | tuple | set | frozenset):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{value} is no number that travels")
    return [str(value)]


def _event(event: ServerEvent) -> dict[str, Any]:
    """An event of the feed as a map, with its kind."""
    members: dict[str, Any] = _json(event.data)
    members.setdefault("event", event.kind)
    return members


def _text_of(event: ServerEvent) -> str:
    """The text of a piece of a log."""
    return str(_json(event.data).get("text", ""))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ProtocolError(f"an event is no JSON: {error}") from None


def _object_of(answer: Answer, name: str) -> dict[str, Any]:
    """The object of JSON that an answer holds."""
    try:
        found = json.loads(bytes(answer.body))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        media = answer.media or "nothing"
        told = f"{name} answered {answer.status} with {media}, and no object of JSON"
        raise ProtocolError(told, peer=name)
    return found
