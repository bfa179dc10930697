"""What changes requests, schedules and the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from forebay.config import parse_timeout
from forebay.errors import ConfigError
from forebay.executor._internal import prune_rule
from forebay.gateway.problems import Problem, problem_of_refusal, refused_value
from forebay.gateway.reading import read_as

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange

Value = TypeVar("Value")

__all__ = ["cancel", "cordon", "pause", "prune", "reload", "resume", "retry", "stop"]


class Prune(msgspec.Struct, forbid_unknown_fields=True):
    """Which ended requests are to go."""

    older_than: str | float | None = None
    status: str | list[str] | None = None
    ids: str | list[str] | None = None
    dry_run: bool = False


class Stop(msgspec.Struct, forbid_unknown_fields=True):
    """How long what runs may take to end."""

    grace: str | float | None = None


class Cordon(msgspec.Struct, forbid_unknown_fields=True):
    """Whether submissions are taken, and why not."""

    undo: bool = False
    reason: str = ""
    dispatches: bool = True


async def cancel(context: Context, exchange: Exchange) -> None:
    """`POST /v1/requests/{id}/cancel`."""
    id_ = await context.server.resolve(exchange.part)
    how = await context.server.ask("cancel", id_, by=exchange.holder.name)
    await exchange.json({"schema": 1, "id": id_, "cancelled": how}, 202)


async def retry(context: Context, exchange: Exchange) -> None:
    """`POST /v1/requests/{id}/retry`."""
    id_ = await context.server.resolve(exchange.part)
    answer = (await context.server.ask("retry", [id_], by=exchange.holder.name))[0]
    refusal = answer.get("refusal", {})
    if refusal.get("code") in ("limit", "store"):
        raise problem_of_refusal(refusal)
    if answer.get("refused"):
        raise Problem(409, "invalid_state", f"{id_}: {answer['refused']}", object=id_)
    await exchange.json({"schema": 1, "id": id_, "status": "queued"}, 202)


async def prune(context: Context, exchange: Exchange) -> None:
    """`POST /v1/prune`: the body is a rule; without one everything that has ended goes."""
    rule = await _read(exchange, Prune)
    try:
        asked = prune_rule(rule.older_than, rule.status, rule.ids, dry_run=rule.dry_run)
    except ConfigError as error:
        raise refused_value("older_than", error) from None
    await exchange.json(await context.server.ask("prune", asked, by=exchange.holder.name))


async def cordon(context: Context, exchange: Exchange) -> None:
    """`POST /v1/cordon`: take no submissions; with `undo`, take them again."""
    wanted = await _read(exchange, Cordon)
    by = exchange.holder.name
    if wanted.undo:
        told = await context.server.ask("uncordon", by=by)
    else:
        told = await context.server.ask("cordon", wanted.reason, wanted.dispatches, by=by)
    await exchange.json(told)


async def reload(context: Context, exchange: Exchange) -> None:
    """`POST /v1/reload`: load the application anew."""
    await exchange.json(await context.server.ask("reload", by=exchange.holder.name))


async def stop(context: Context, exchange: Exchange) -> None:
    """`POST /v1/stop`: end the server once what runs has ended."""
    wanted = await _read(exchange, Stop)
    try:
        grace = parse_timeout(wanted.grace)
    except ConfigError as error:
        raise refused_value("grace", error) from None
    await exchange.json(await context.server.ask("stop", grace, by=exchange.holder.name))


async def pause(context: Context, exchange: Exchange) -> None:
    """`POST /v1/schedules/{name}/pause`."""
    await _set_schedule(context, exchange, paused=True)


async def resume(context: Context, exchange: Exchange) -> None:
    """`POST /v1/schedules/{name}/resume`."""
    await _set_schedule(context, exchange, paused=False)


async def _set_schedule(context: Context, exchange: Exchange, *, paused: bool) -> None:
    told = await context.server.ask("set_schedule", exchange.part, paused, by=exchange.holder.name)
    await exchange.json(told)


async def _read(exchange: Exchange, type_: type[Value]) -> Value:
    body = await exchange.body()
    return read_as(type_, body) if body else type_()
