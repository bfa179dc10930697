"""What other packages of Forebay use of this one, and its users do not.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.executor.app.definition import callable_without_context as callable_without_context
    from forebay.executor.app.load import find_app as find_app
    from forebay.executor.app.load import load as load
    from forebay.executor.app.options import LANES as LANES
    from forebay.executor.app.options import PRIORITY_MAX as PRIORITY_MAX
    from forebay.executor.app.options import RETRIES_MAX as RETRIES_MAX
    from forebay.executor.app.secret import is_secret as is_secret
    from forebay.executor.app.sources import code_of as code_of
    from forebay.executor.app.sources import sources_of as sources_of
    from forebay.executor.app.target import looks_like_target as looks_like_target
    from forebay.executor.app.target import parse_target as parse_target
    from forebay.executor.backup.checking import check_backup as check_backup
    from forebay.executor.backup.copying import back_up as back_up
    from forebay.executor.client.async_links import AsyncLinks as AsyncLinks
    from forebay.executor.client.follow import item_of as item_of
    from forebay.executor.client.links import Links as Links
    from forebay.executor.client.local import home_of as home_of
    from forebay.executor.client.questions import ONCE as ONCE
    from forebay.executor.client.questions import prune_rule as prune_rule
    from forebay.executor.client.remote import remote_url as remote_url
    from forebay.executor.client.result_file import file_of as file_of
    from forebay.executor.client.shown import why_of as why_of
    from forebay.executor.client.token import token_for as token_for
    from forebay.executor.engine.engine import Capacity as Capacity
    from forebay.executor.engine.order import Certificates as Certificates
    from forebay.executor.engine.order import Place as Place
    from forebay.executor.engine.task import run_worker as run_worker
    from forebay.executor.server.rows import now_ms as now_ms
    from forebay.executor.server.rows import rfc3339 as rfc3339
    from forebay.executor.server.server import Server as Server
    from forebay.executor.server.takeover.handover import Offer as Offer
    from forebay.executor.server.takeover.predecessor import Predecessor as Predecessor
    from forebay.executor.server.takeover.predecessor import find_predecessor as find_predecessor
    from forebay.executor.wire.array_layout import MAGIC as MAGIC
    from forebay.executor.wire.array_layout import START as START
    from forebay.executor.wire.array_layout import head_bytes as head_bytes
    from forebay.executor.wire.array_layout import padding as padding
    from forebay.executor.wire.codec import ARRAY as ARRAY
    from forebay.executor.wire.codec import ARRAY_BESIDE as ARRAY_BESIDE
    from forebay.executor.wire.codec import decode as decode
    from forebay.executor.wire.codec import encode as encode
    from forebay.executor.wire.frames import Message as Message
    from forebay.executor.wire.frames import message as message
    from forebay.executor.wire.frames import returned as returned
    from forebay.executor.wire.frames import submission as submission
    from forebay.executor.wire.frames import value_of as value_of
    from forebay.executor.wire.paths import LOCAL_TOKEN as LOCAL_TOKEN
    from forebay.executor.wire.paths import TOKENS as TOKENS
    from forebay.executor.wire.paths import newest as newest
    from forebay.executor.wire.paths import paths_of as paths_of
    from forebay.executor.wire.paths import running as running
    from forebay.executor.wire.paths import state_root as state_root

__getattr__, __dir__ = lazy(
    __name__,
    {
        "app.definition": ("callable_without_context",),
        "app.load": ("find_app", "load"),
        "app.options": ("LANES", "PRIORITY_MAX", "RETRIES_MAX"),
        "app.secret": ("is_secret",),
        "app.sources": ("code_of", "sources_of"),
        "app.target": ("looks_like_target", "parse_target"),
        "backup.checking": ("check_backup",),
        "backup.copying": ("back_up",),
        "client.async_links": ("AsyncLinks",),
        "client.follow": ("item_of",),
        "client.links": ("Links",),
        "client.local": ("home_of",),
        "client.questions": ("ONCE", "prune_rule"),
        "client.remote": ("remote_url",),
        "client.result_file": ("file_of",),
        "client.shown": ("why_of",),
        "client.token": ("token_for",),
        "engine.engine": ("Capacity",),
        "engine.task": ("run_worker",),
        "engine.order": ("Certificates", "Place"),
        "server.rows": ("now_ms", "rfc3339"),
        "server.server": ("Server",),
        "server.takeover.handover": ("Offer",),
        "server.takeover.predecessor": ("Predecessor", "find_predecessor"),
        "wire.array_layout": ("MAGIC", "START", "head_bytes", "padding"),
        "wire.codec": ("ARRAY", "ARRAY_BESIDE", "decode", "encode"),
        "wire.frames": ("Message", "message", "returned", "submission", "value_of"),
        "wire.paths": ("LOCAL_TOKEN", "TOKENS", "newest", "paths_of", "running", "state_root"),
    },
)
