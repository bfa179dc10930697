"""The configuration of a server in the words of its dispatcher: milliseconds and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.config import ExecutorConfig
    from forebay.executor.wire.paths import ServerPaths


def settings_of(
    config: ExecutorConfig, paths: ServerPaths, *, reloads: bool, ends_when_idle: bool
) -> dict[str, Any]:
    """What a dispatcher is made with.

    Args:
        config: sizes and times.
        paths: where it keeps its state and listens.
        reloads: whether it stops dispatching when a source changes, until that is loaded.
        ends_when_idle: whether it says so when nothing was asked for in `idle_timeout`.
    """
    settings: dict[str, Any] = {
        "state_dir": str(paths.state),
        "socket": str(paths.socket),
        "side_socket": str(paths.side_socket),
        "workers_max": config.max_workers,
        "guaranteed": [config.short_workers, config.long_workers, 0],
        "worker_idle_ms": _ms(config.worker_idle_timeout),
        "worker_uses_max": config.max_worker_uses,
        "worker_age_max_ms": _ms(config.max_worker_age),
        "worker_growth_max_bytes": config.max_worker_growth,
        "async_at_once": config.async_at_once,
        "deaths_max": config.max_deaths,
        "exception_ms": _ms(config.cancel_grace),
        "terminate_ms": _ms(config.terminate_grace),
        "queued_max": config.max_queued,
        "queued_per_submitter_max": config.max_queued_per_submitter,
        "arguments_bytes_max": config.max_argument_bytes,
        "queue_bytes_max": config.max_queue_bytes,
        "result_bytes_max": config.max_result_bytes,
        "log_bytes_max": config.max_log_bytes,
        "retention_age_ms": _ms(config.retention_age),
        "retention_bytes": config.retention_bytes,
        "synchronous": config.synchronous,
        "server_number": config.server_number,
        "reload": reloads,
    }
    if config.max_memory:
        settings["memory_limit"] = config.max_memory
    if ends_when_idle and config.idle_timeout:
        settings["idle_end_ms"] = _ms(config.idle_timeout)
    return settings


def item_limits(config: ExecutorConfig) -> dict[str, int]:
    """What a worker keeps of one generator, as `forebay.executor.worker.items` takes it."""
    return {
        "max_items": config.max_items,
        "max_item_bytes": config.max_item_bytes,
        "max_stream_bytes": config.max_stream_bytes,
        "synced": config.synchronous == "full",
    }


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
