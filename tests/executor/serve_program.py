"""A server as a program: what happens is printed, an object a line."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from typing import Any, Final

from forebay._hook_config import HookConfig, hooks_of
from forebay.config import ExecutorConfig
from forebay.configuration import find_configuration
from forebay.errors import Error
from forebay.executor.app.target import parse_target
from forebay.executor.server import server
from forebay.executor.server.server import Server
from forebay.executor.server.takeover import handover, predecessor
from forebay.executor.server.takeover.predecessor import find_predecessor
from forebay.executor.wire.paths import paths_of

ENGINE: Final = {
    name: os.environ.get(f"FOREBAY_EXECUTOR_{name.upper()}", "") for name in ("engine", "scheduler")
}
"""Settings that `pytest --engine` gives to all servers, but those whose test names an engine."""


def _print(event: str, facts: dict[str, Any]) -> None:
    os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")


def _look_often(retention_every_ms: int) -> None:
    """Look for what is too old so often, which is no setting: every minute does for all."""
    usual = server.settings_of

    def settings_of(*args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**usual(*args, **kwargs), "retention_every_ms": retention_every_ms}

    server.settings_of = settings_of


def _hooks(settings: dict[str, Any]) -> tuple[HookConfig, ...]:
    """Hooks, and what is no setting of theirs: the times of their tries."""
    from forebay.executor.server.hooks import driver

    for name in ("WAITS_S", "TRY_S", "LOOK_S"):
        value = settings.pop(f"hook_{name.lower()}", getattr(driver, name))
        setattr(driver, name, tuple(value) if isinstance(value, list) else value)
    return hooks_of(settings.pop("hooks"))


def main() -> int:
    """Serve the target of the first argument with the settings of the second, a JSON object."""
    faulthandler.register(signal.SIGUSR2)  # where it hangs, for who looks
    settings = json.loads(sys.argv[2])
    reloads = settings.pop("reloads", False)
    ends_when_idle = settings.pop("ends_when_idle", False)
    log_format = settings.pop("log_format", None)
    pool = find_configuration({"pool.max_size": settings.pop("pool_max_size", None)}).pool
    hooks = _hooks(settings) if "hooks" in settings else ()
    handover.TAKE_S = settings.pop("take_s", handover.TAKE_S)
    handover.END_S = settings.pop("end_s", handover.END_S)
    predecessor.ANSWER_S = settings.pop("answer_s", predecessor.ANSWER_S)
    takes_over = settings.pop("takeover", False)
    if "retention_every_ms" in settings:
        _look_often(settings.pop("retention_every_ms"))
    try:
        target = parse_target(sys.argv[1])
        before = find_predecessor(paths_of(target)) if takes_over else None
        server = Server(
            target,
            ExecutorConfig(**settings if "engine" in settings else {**ENGINE, **settings}),
            pool=pool,
            reloads=reloads,
            ends_when_idle=ends_when_idle,
            log_format=log_format,
            hooks=hooks,
            predecessor=before,
            report=_print,
        )
        return server.run()
    except Error as error:
        _print("error", {"type": type(error).__name__, "message": str(error)})
        return 70


if __name__ == "__main__":
    sys.exit(main())
