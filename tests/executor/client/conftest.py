"""One suite for both ways to a server: its socket, and HTTP through a gateway.

A test that asks for `server`, `connect` or `client` here runs once for each way, but those of
`UNIX_ONLY`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from forebay.executor import AsyncClient, Client
from tests.client.tls_gateway import TlsGateway
from tests.executor.small_server import SmallServer

Connect = Callable[..., Client]
ConnectAsync = Callable[..., AsyncClient]

PATIENCE_S: Final = 4.0
"""Of clients over HTTP: what is refused with a time to come back is asked for again so long."""

REFUSED_PATIENCE_S: Final = 2.0
"""Of clients over HTTP in tests of refusals, which come when it is over: a second as the gateway
asks for, and not three."""

REFUSALS = {
    "test_failures_and_refusals_are_raised",
    "test_submitting_without_waiting",
    "test_leaving_waits_until_everything_is_on_disk",
    "test_a_refusal_that_was_looked_at_is_not_raised_again",
    "test_leaving_raises_for_what_was_refused_and_never_looked_at",
    "test_leaving_does_not_hide_the_programs_own_error",
    "test_a_refusal_is_raised_by_whatever_asks_first",
}
"""Tests of what a server refuses for a while."""

UNIX_ONLY = {
    "test_dropped_handles_leave_their_requests": "looks at what the other client keeps",
    "test_ends_that_nobody_has_asked_for_are_asked_for_later": "likewise; HTTP keeps no answers",
    "test_so_many_that_some_are_let_go_and_looked_at_later": "likewise",
    "test_so_many_that_the_next_one_waits": "likewise",
    "test_submit_raises_what_the_server_refused_it_with": "likewise; test_calls has it for HTTP",
    "test_an_interrupt_as_the_answer_comes_loses_nothing": "strikes in the other client's code",
    "test_a_client_that_was_left_says_so": "with its words; test_calls has it for HTTP",
    "test_options_travel_in_the_units_of_the_wire": "is of the wire; a gateway reads HTTP's",
    "test_wrong_options_are_refused_here": "likewise: over HTTP the gateway refuses them",
    "test_no_server_is_an_error_at_once": "is of a socket; test_calls has it for HTTP",
    "test_a_submission_of_unknown_fate_says_so": "over HTTP each has a key and is sent again",
    "test_a_submit_of_unknown_fate_raises": "likewise",
    "test_submissions_of_unknown_fate_are_told_one_by_one": "likewise",
    "test_who_waits_behind_anothers_attempt_has_his_own_time": "a gateway ends with its server,"
    " but this one, which answers for it",
    "test_all_who_wait_for_a_server_that_stays_away_are_told_at_once": "likewise",
    "test_a_server_that_hands_a_request_on_tells_its_id_alone": "of a server that ends; a gateway"
    " ends with it",
    "test_a_timeout_is_one_however_often_the_connection_breaks": "has a server of its own",
}
"""Tests of the socket's client alone, and why."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test once for each way that it can go."""
    if "transport" in metafunc.fixturenames:
        name = metafunc.function.__name__
        ways = ["unix"] if name in UNIX_ONLY else ["unix", "http"]
        metafunc.parametrize("transport", ways, indirect=True, scope="package")


@pytest.fixture(scope="package")
def transport(request: pytest.FixtureRequest) -> str:
    """The way to the server."""
    way: str = request.param
    return way


@pytest.fixture(scope="package")
def place() -> Iterator[Path]:
    """A directory whose path is short, as sockets want."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(scope="package")
def gateway(transport: str, place: Path) -> Iterator[TlsGateway | None]:
    """A gateway for the tests over HTTP; the server of each takes the place of the one before."""
    if transport == "unix":
        yield None
        return
    gateway = TlsGateway(Path(tempfile.mkdtemp(dir=place)), place / "s")
    gateway.start()
    yield gateway
    gateway.close()


@pytest.fixture
def server(place: Path, gateway: TlsGateway | None) -> Iterator[SmallServer]:
    """A server that runs nothing."""
    for left in place.glob("state.*"):
        left.unlink()
    server = SmallServer(place)
    yield server
    server.kill()


@pytest.fixture
def patience(request: pytest.FixtureRequest) -> float:
    """Seconds that a client over HTTP waits for what a server refuses, or for its answer."""
    return REFUSED_PATIENCE_S if request.function.__name__ in REFUSALS else PATIENCE_S


@pytest.fixture
def connect(server: SmallServer, gateway: TlsGateway | None, patience: float) -> Connect:
    """Makes clients of the server."""

    def connect(*, timeout: float = 20.0) -> Client:
        if gateway is None:
            return Client(server.url, timeout=timeout)
        return Client(gateway.url, timeout=min(timeout, patience), **gateway.options)

    return connect


@pytest.fixture
def connect_async(server: SmallServer, gateway: TlsGateway | None, patience: float) -> ConnectAsync:
    """The same for event loops."""

    def connect(*, timeout: float = 20.0) -> AsyncClient:
        if gateway is None:
            return AsyncClient(server.url, timeout=timeout)
        return AsyncClient(gateway.url, timeout=min(timeout, patience), **gateway.options)

    return connect


@pytest.fixture
def client(connect: Connect) -> Iterator[Client]:
    """A client of the server."""
    with connect() as client:
        yield client
