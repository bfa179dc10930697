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
    from forebay.executor.app.sources import code_of as code_of
    from forebay.executor.app.sources import sources_of as sources_of
    from forebay.executor.app.target import looks_like_target as looks_like_target
    from forebay.executor.app.target import parse_target as parse_target
    from forebay.executor.client.remote import remote_url as remote_url
    from forebay.executor.server.server import Server as Server
    from forebay.executor.wire.codec import decode as decode
    from forebay.executor.wire.codec import encode as encode
    from forebay.executor.wire.errors import failure_text as failure_text
    from forebay.executor.wire.paths import newest as newest
    from forebay.executor.wire.paths import paths_of as paths_of
    from forebay.executor.wire.paths import running as running
    from forebay.executor.wire.paths import state_root as state_root

__getattr__, __dir__ = lazy(
    __name__,
    {
        "app.definition": ("callable_without_context",),
        "app.load": ("find_app", "load"),
        "app.sources": ("code_of", "sources_of"),
        "app.target": ("looks_like_target", "parse_target"),
        "client.remote": ("remote_url",),
        "server.server": ("Server",),
        "wire.codec": ("decode", "encode"),
        "wire.errors": ("failure_text",),
        "wire.paths": ("newest", "paths_of", "running", "state_root"),
    },
)
