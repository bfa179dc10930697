"""Every metric of a server: the one table of their names.

The alert rules and the board in `deploy/` use these names and labels and no others, and a server
tells no others; tests check both.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["FAMILIES", "Family"]


class Family(NamedTuple):
    """One metric.

    Attributes:
        kind: "counter", "gauge" or "histogram".
        labels: names of its labels, each of a bounded set of values.
        help: what it says.
    """

    kind: str
    labels: tuple[str, ...]
    help: str


FAMILIES: Final = {
    "forebay_build_info": Family(
        "gauge", ("version",), "The version of the server as a label; always 1."
    ),
    # Requests.
    "forebay_requests_submitted_total": Family(
        "counter", ("name",), "Requests that were accepted."
    ),
    "forebay_requests_finished_total": Family(
        "counter", ("name", "outcome"), "Requests that ended, by how they ended."
    ),
    "forebay_requests_refused_total": Family(
        "counter", ("code",), "Submissions that were refused, by the code of the refusal."
    ),
    "forebay_requests_queued": Family("gauge", ("lane",), "Requests that wait for a worker."),
    "forebay_requests_running": Family("gauge", ("lane",), "Requests that run."),
    "forebay_requests_waiting": Family(
        "gauge", ("reason",), "Requests that wait for something else than their turn."
    ),
    "forebay_requests_oldest_queued_seconds": Family(
        "gauge", ("lane",), "How long the oldest queued request has waited."
    ),
    "forebay_request_queue_seconds": Family(
        "histogram", ("name",), "From being accepted, or ready again, to a worker."
    ),
    "forebay_request_run_seconds": Family(
        "histogram", ("name",), "From a worker to the end of the run."
    ),
    "forebay_feed_events": Family("gauge", (), "Events that the feed keeps."),
    "forebay_feed_bytes": Family("gauge", (), "What those take."),
    "forebay_feed_readers": Family("gauge", (), "Readers of the feed."),
    "forebay_feed_events_total": Family("counter", (), "Events that happened."),
    "forebay_feed_gaps_total": Family(
        "counter", (), "How often a reader of the event feed was told a gap."
    ),
    # The server.
    "forebay_workers": Family("gauge", ("lane", "state"), "Worker processes."),
    "forebay_process_deaths_total": Family(
        "counter", ("role", "cause"), "Processes that ended without being asked to."
    ),
    "forebay_memory_resident_bytes": Family(
        "gauge", (), "Memory in use that cannot be reclaimed, of the limit."
    ),
    "forebay_memory_limit_bytes": Family(
        "gauge", (), "The memory that the server and its workers may use."
    ),
    "forebay_memory_promised_bytes": Family(
        "gauge", (), "Memory that running requests are expected to need beyond what they have."
    ),
    "forebay_server_cordoned": Family(
        "gauge", (), "Whether an operator lets it take no submissions; 0 or 1."
    ),
    "forebay_server_held": Family("gauge", (), "Whether nothing is dispatched; 0 or 1."),
    "forebay_store_in_flight": Family("gauge", (), "Changes that are not on disk yet."),
    "forebay_store_kept": Family("gauge", (), "Changes that wait for a store that cannot write."),
    "forebay_store_commit_seconds": Family(
        "histogram", (), "Commits of the store, each with all that it had collected."
    ),
    # Hooks.
    "forebay_hook_deliveries_total": Family(
        "counter",
        ("hook", "outcome"),
        "Tries to call a hook: delivered, failed and due again, or given up.",
    ),
    "forebay_hooks_dropped_total": Family(
        "counter", (), "Calls of hooks that were dropped, since too many waited."
    ),
    "forebay_hooks_waiting": Family("gauge", (), "Calls of hooks that are not answered yet."),
    # What workers use of other systems.
    "forebay_pool_services": Family(
        "gauge", ("pool", "state"), "Services that live, of the server's pool and of workers' own."
    ),
    "forebay_pool_waiters": Family("gauge", ("pool",), "Callers that wait for a service."),
    "forebay_pool_acquires_total": Family(
        "counter", ("pool", "result"), "Services that workers acquired, or did not get."
    ),
    "forebay_pool_acquire_seconds": Family(
        "histogram", ("pool",), "How long workers waited for the services that they got."
    ),
    "forebay_transport_connections": Family(
        "gauge", ("scheme",), "Open connections of the server, and others of its workers."
    ),
    "forebay_transport_bytes_total": Family(
        "counter", ("direction",), "Bytes of the server's connections, and others of its workers."
    ),
    "forebay_tensor_slots": Family(
        "gauge", ("state",), "Pulls and pushes of workers: under way, or waiting for a slot."
    ),
    "forebay_blockio_operations_total": Family(
        "counter", ("operation", "backend"), "Block operations that workers submitted."
    ),
    "forebay_arena_bytes": Family("gauge", ("state",), "Memory of the arenas of workers."),
    # HTTP.
    "forebay_gateway_connections": Family("gauge", (), "Open HTTP connections."),
    "forebay_gateway_requests_total": Family(
        "counter", ("method", "status"), "HTTP requests that were answered."
    ),
    "forebay_gateway_request_seconds": Family(
        "histogram", (), "From the head of an HTTP request to the end of its answer."
    ),
}
