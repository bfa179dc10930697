"""A pytest plugin for distributed's own tests: our comms in place of those over tornado.

`FOREBAY_DISTRIBUTED_TESTS` names a source checkout of `dask/distributed`; its tests run against the
`distributed` that is installed, since wheels have neither tests nor certificates.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from distributed import utils_test
from distributed.comm import tcp
from distributed.comm.registry import backends

from forebay.dask import Backend, Comm, Connector, Listener

pytest_plugins = ["distributed.pytest_resourceleaks"]

TORNADO = "it replaces a part of tornado's stream"
APART = "it wants an array and the head before it in one memory; here few are"
NOT_OURS = {
    "test_comm_closed_on_write_error": TORNADO,
    "test_stop_listener_during_handle_stream": TORNADO,
    "test_share_buffer_with_header[1-0-False]": APART,
    "test_share_buffer_with_header[1-1800-False]": APART,
    "test_share_buffer_with_header[1-2100-True]": "it asks a bytearray for its nbytes",
    "test_share_buffer_with_header[200000-9500-False]": APART,
    "test_share_buffer_with_header[350000-0-False]": APART,
}
"""Tests that cannot hold here, with the reason; docs/guides/dask.md has the same table."""


class TCP(Comm):
    """A comm that goes by the name of the one that it replaces."""


class TCPConnector(Connector):
    prefix = "tcp://"
    comm_class = TCP


class TCPListener(Listener):
    prefix = "tcp://"
    comm_class = TCP


class TCPBackend(Backend):
    _connector_class = TCPConnector
    _listener_class = TCPListener


def pytest_configure() -> None:
    """Put ours in place, for whoever asks the module or the registry."""
    for replacement in (TCPConnector, TCPListener, TCPBackend):
        setattr(tcp, replacement.__name__, replacement)
    backends["tcp"] = TCPBackend()
    checkout = Path(os.environ["FOREBAY_DISTRIBUTED_TESTS"])
    utils_test.certs_dir = str(checkout / "distributed" / "tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot hold, and say why."""
    for item in items:
        name = item.name.replace("[tornado]", "").replace("[tornado-", "[")
        reason = NOT_OURS.get(name) or NOT_OURS.get(name.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
