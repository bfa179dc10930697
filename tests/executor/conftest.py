"""`--engine dask`: servers of these tests run their workers on the nodes of a cluster.

One cluster serves all of them. Servers hear of it by variables of the environment, as any server
does; those of `Serving`, whose settings are given, take them for defaults.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.executor.on_engine import table
from tests.executor.on_engine.cluster import TestCluster
from tests.skip_list import SkipList


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option; it is known where tests/executor, or what is in it, is named."""
    parser.addoption(
        "--engine",
        choices=["dask"],
        help="run the workers of the servers of tests/executor on the nodes of a cluster",
    )


def _engine(config: pytest.Config) -> Any:
    return config.getoption("--engine", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Start the cluster, in the process whose environment all others of the run have."""
    if _engine(config) is None or hasattr(config, "workerinput"):
        return
    cluster = TestCluster()
    config.add_cleanup(cluster.close)
    os.environ["FOREBAY_EXECUTOR_ENGINE"] = _engine(config)
    os.environ["FOREBAY_EXECUTOR_SCHEDULER"] = cluster.address
    config.pluginmanager.register(table.Share(table.selects_everything(config)))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Where it is."""
    if _engine(config) is None:
        return None
    return f"engine {_engine(config)}: {os.environ['FOREBAY_EXECUTOR_SCHEDULER']}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Its table is listed, too."""
    if _engine(session.config) is not None:
        for plugin in session.config.pluginmanager.get_plugins():
            if isinstance(plugin, SkipList):
                plugin.listed += [row.allowed() for row in table.rows()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what concerns one machine."""
    if _engine(config) is not None:
        table.skip(items)
