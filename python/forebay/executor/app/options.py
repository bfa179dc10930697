"""The options of a request: how it is run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from forebay._core import cron_fault
from forebay.config import parse_bytes, parse_seconds
from forebay.errors import ConfigError

Lane = Literal["short", "long", "async"]

LANES = ("short", "long", "async")
RETRIES_MAX = 1000
PRIORITY_MAX = 1_000_000
AHEAD_MAX = 64
CPU_MAX = 1024
SECONDS_MAX = 10 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options of a request, checked, in bytes and seconds.

    Attributes:
        lane: "short", "long" or "async".
        priority: higher runs first, within a lane and a submitter.
        timeout_s: seconds that one attempt may run; None: any time.
        retries: further attempts where one failed or its worker died; 0: it runs once at most.
        backoff_s: seconds before the first further attempt; doubled before each one after it.
        backoff_max_s: the longest of these times; at least `backoff_s`.
        idempotent: whether it may run again if it is not known whether it ran.
        memory_bytes: private memory that it is expected to need; None: what was measured.
        cpu: cores that it is expected to use.
        concurrency: how many may run at once; None: any number.
        concurrency_key: a parameter, each value of which is counted separately; None: all together.
        cron: when it is submitted by the server itself; None: never.
        ahead: further requests of its name that a worker may get while it runs one.
        retention_s: seconds that it is kept once it has ended; None: as the server keeps others.
    """

    lane: Lane
    priority: int
    timeout_s: float | None
    retries: int
    backoff_s: float
    backoff_max_s: float
    idempotent: bool
    memory_bytes: int | None
    cpu: float
    concurrency: int | None
    concurrency_key: str | None
    cron: str | None
    ahead: int
    retention_s: float | None

    @classmethod
    def checked(cls, what: str, *, is_async: bool, **given: Any) -> RequestOptions:
        """Check the options of an application, and convert text with units to numbers.

        Args:
            what: the request for messages, as in "request 'classify'".
            is_async: whether the function is an `async def`.
            given: arguments of `App.request` by name.

        Raises:
            ConfigError: one of them is wrong; the message names it and its value.
        """
        concurrency, key = given["concurrency"], given["concurrency_key"]
        if concurrency is not None:
            _whole(what, "concurrency", concurrency, 1, 2**31 - 1)
        elif key is not None:
            raise ConfigError(
                f"{what}: concurrency_key={key!r} says what is counted apart, but nothing says "
                "how many may run at once; give concurrency=N too"
            )
        timeout = _seconds(what, "timeout", given["timeout"])
        if timeout == 0:
            raise ConfigError(f"{what}: timeout=0 lets nothing run; leave it out for no time-out")
        backoff = _seconds(what, "backoff", given["backoff"]) or 0.0
        max_backoff = _seconds(what, "max_backoff", given["max_backoff"]) or 0.0
        return cls(
            lane=_lane(what, given["lane"], is_async=is_async),
            priority=_whole(what, "priority", given["priority"], -PRIORITY_MAX, PRIORITY_MAX),
            timeout_s=timeout,
            retries=_whole(what, "retries", given["retries"], 0, RETRIES_MAX),
            backoff_s=backoff,
            backoff_max_s=max(backoff, max_backoff),
            idempotent=_flag(what, "idempotent", given["idempotent"]),
            memory_bytes=_bytes(what, given["memory"]),
            cpu=_cpu(what, given["cpu"]),
            concurrency=concurrency,
            concurrency_key=key,
            cron=_cron(what, given["cron"]),
            ahead=_ahead(what, given["ahead"], is_async=is_async),
            retention_s=_seconds(what, "retention", given["retention"]),
        )


def _lane(what: str, lane: Any, *, is_async: bool) -> Lane:
    if lane is None:
        return "async" if is_async else "long"
    if lane not in LANES:
        raise ConfigError(
            f"{what}: unknown lane={lane!r}; use one of {', '.join(map(repr, LANES))}"
        )
    if is_async != (lane == "async"):
        kind, fits = ("async def", "async") if is_async else ("def", "short' or 'long")
        raise ConfigError(
            f"{what}: lane={lane!r} does not fit a function made with `{kind}`, which runs in "
            f"lane '{fits}'; leave lane out, or change the function"
        )
    return lane  # type: ignore[no-any-return]


def _whole(what: str, name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{what}: {name}={value!r} is no whole number from {low} to {high}")
    return value


def _flag(what: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{what}: {name}={value!r} is neither True nor False")
    return value


def _seconds(what: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        seconds = parse_seconds(value)
    except ConfigError as error:
        raise ConfigError(f"{what}: {name}={value!r}: {error}") from None
    if math.isinf(seconds):
        raise ConfigError(f"{what}: {name}={value!r} never ends; leave it out")
    if seconds > SECONDS_MAX:
        raise ConfigError(
            f"{what}: {name}={value!r} is {seconds:.0f} s, the limit is {SECONDS_MAX} s (ten"
            " years); leave it out, or give less"
        )
    return seconds


def _bytes(what: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        return parse_bytes(value)
    except ConfigError as error:
        raise ConfigError(f"{what}: memory={value!r}: {error}") from None


def _cpu(what: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= CPU_MAX:
        raise ConfigError(
            f"{what}: cpu={value!r} is no number of cores above 0 and up to {CPU_MAX}"
        )
    return float(value)


def _ahead(what: str, value: Any, *, is_async: bool) -> int:
    ahead = _whole(what, "ahead", value, 0, AHEAD_MAX)
    if ahead and is_async:
        raise ConfigError(
            f"{what}: ahead={ahead} is for functions made with `def`; a worker of the async lane "
            "begins thousands at once, so leave it out"
        )
    return ahead


def _cron(what: str, value: Any) -> str | None:
    if value is None:
        return None
    fault = cron_fault(value) if isinstance(value, str) else "it is no text"
    if fault is not None:
        raise ConfigError(
            f"{what}: cron={value!r} is no schedule: {fault}; write minute, hour, day, month and"
            " weekday, as in '*/5 * * * *'"
        )
    return " ".join(value.split())
