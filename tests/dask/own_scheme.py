"""distributed's own checks of a comm, under our own schemes.

Run by test_contract.py with a checkout of `dask/distributed` on the path; its coroutines take an
address each.
"""

from __future__ import annotations

import pytest
from distributed import utils_test
from distributed.comm.tests import test_comms as theirs
from distributed.utils_test import gen_test

ADDRESSES = ["forebay://127.0.0.1", "forebay+unix://"]
NOBODY = {"forebay": "forebay://127.0.0.1:44444", "forebay+unix": "forebay+unix:///nobody/there"}


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize(
    "check",
    [
        theirs.check_client_server,
        theirs.check_comm_closed_implicit,
        theirs.check_comm_closed_explicit,
        theirs.check_many_listeners,
        theirs.check_deserialize,
        theirs.check_deserialize_roundtrip,
        theirs.check_deserialize_eoferror,
    ],
)
@gen_test()
async def test_check(check, address):
    await check(address)


@pytest.mark.parametrize(
    "check",
    [
        theirs.check_client_server,
        theirs.check_comm_closed_implicit,
        theirs.check_comm_closed_explicit,
    ],
)
@gen_test()
async def test_check_encrypted(check):
    security = utils_test.tls_only_security()
    await check(
        "forebay+tls://127.0.0.1",
        listen_args=security.get_listen_args("scheduler"),
        connect_args=security.get_connection_args("client"),
    )


@gen_test()
async def test_connect_timeout(address):
    await theirs.check_connect_timeout(NOBODY[address.partition("://")[0]])


@gen_test()
async def test_repr(address):
    await theirs.check_repr(*await theirs.get_comm_pair(address))


@gen_test()
async def test_addresses(address):
    await theirs.check_addresses(*await theirs.get_comm_pair(address))
