"""Tests of distributed left out over our comms, and why; docs/guides/dask.md shows the same."""

from __future__ import annotations

TORNADO = "it replaces a part of tornado's stream"
APART = "it wants an array and the head before it in one memory; here few are"
METRICS = "it tests metrics, with a package that is not installed"

SKIPS = {
    "test_comm_closed_on_write_error": TORNADO,
    "test_stop_listener_during_handle_stream": (
        f"{TORNADO}; tests/dask/test_comm.py has the same for ours"
    ),
    "test_share_buffer_with_header[1-0-False]": APART,
    "test_share_buffer_with_header[1-1800-False]": APART,
    "test_share_buffer_with_header[1-2100-True]": "it asks a bytearray for its nbytes",
    "test_share_buffer_with_header[200000-9500-False]": APART,
    "test_share_buffer_with_header[350000-0-False]": APART,
    "test_server_listen": (
        "it fails over their own comms too, in a function of distributed.utils_test"
    ),
    "test_large_payload": "it sends 2 GiB in one field, which needs 10 GiB of memory",
    "test_large_traffic_jam": (
        "it wants 750 MB echoed within 5 s; on a slow machine it fails over their own comms too"
    ),
    "test_server_close_stops_gil_monitoring": METRICS,
    "test_ticks": METRICS,
    "test_tick_logging": METRICS,
}
"""Names of tests, with their parameters or without, and the reason."""


DIFFERENCES: dict[str, str] = {}
"""Tests of the whole suite that fail over ours alone, below `distributed`, and why; see `suite`."""


def listed(name: str) -> str | None:
    """The row for a test as pytest calls it; None for one that is to run.

    The fixture of theirs that is ours here shows up among the parameters, as `tornado`.
    """
    shortened = name.replace("[tornado]", "").replace("[tornado-", "[")
    for row in (shortened, shortened.partition("[")[0]):
        if row in SKIPS:
            return row
    return None
