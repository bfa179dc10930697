"""The transport benchmarks check what they time, and a broken side is a failure with its reason."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks import table
from benchmarks.claim import Contestant
from benchmarks.harness import Series
from benchmarks.stopwatch import Figures
from benchmarks.transport import gil_table as transport_gil_table
from benchmarks.transport.message import Shape
from benchmarks.transport.peers import epoll as transport_epoll
from tests.tidy.tree import ROOT


@pytest.mark.parametrize(
    ("name", "shape"),
    [("1e3", Shape(1, 1_000)), ("5x1e6", Shape(5, 1_000_000)), ("1000x100", Shape(1_000, 100))],
)
def test_a_figures_name_says_what_is_sent(name: str, shape: Shape):
    """A row's name and its message cannot differ."""
    assert Shape.parse(name) == shape


SHAPE = Shape(3, 100)
FIRST, SECOND = SHAPE.messages()


@pytest.mark.parametrize(
    "frames",
    [SECOND, FIRST[:2], [*FIRST[:2], FIRST[2][:-1]], [*FIRST[:2], SECOND[2]]],
    ids=["another request's", "a frame short", "a byte short", "another last byte"],
)
def test_an_answer_is_held_against_the_message_that_was_sent(frames: list[bytes]):
    """Lost frames, short frames and the answer to another request are no result."""
    SHAPE.check(FIRST, 0)
    SHAPE.check(SECOND, 1)
    with pytest.raises(ValueError, match="asked for 3 frames of 100 bytes marked 0"):
        SHAPE.check(frames, 0)


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program that forks, in a process without the threads of the tests."""
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=40
    )


ECHOES = """
import json
from benchmarks import processes
from benchmarks.transport import round as transport_round
figures = transport_round.echoes(
    wanted=["1e3/rate", "3x1e5/rate"], {side}, clients=2, connections=2, seconds=0.05,
    warm_up_s=0.01, hog="inside",
)
print(processes.descendants(processes.os.getpid()))
print(sorted(name for name, value in figures.items() if not value > 0))
print(sorted(figures))
"""


@pytest.mark.parametrize(
    "side", ['name="uvloop"', 'name="forebay", loop="asyncio"', 'name="forebay", loop="uvloop"']
)
def test_a_round_gives_every_figure_of_the_wanted_messages_and_leaves_nothing(side: str):
    """Both sides of the rows are measured in the same way, with the hog's share beside."""
    result = run(ECHOES.format(side=side))
    assert result.returncode == 0, result.stderr
    names = ("cpu", "kept", "memory_mb", "p50", "p99", "rate")
    expected = [f"{message}/{name}" for message in ("1e3", "3x1e5") for name in names]
    assert result.stdout.splitlines() == ["[]", "[]", str(expected)]


FLOWS = """
from benchmarks.transport import round as transport_round
options = {"name": "forebay", "loop": "asyncio", "seconds": 0.05, "warm_up_s": 0.01}
for function, message in (
    (transport_round.streaming, "100"),
    (transport_round.gathering, "1e5"),
):
    print(sorted(function(wanted=[f"{message}/rate"], **options)))
"""


def test_streams_and_gathers_are_measured_too():
    """The rows that are no echoes run on the same processes."""
    result = run(FLOWS)
    assert result.returncode == 0, result.stderr
    names = ("cpu", "memory_mb", "p50", "p99", "rate")
    assert result.stdout.splitlines() == [
        str([f"{message}/{name}" for name in names]) for message in ("100", "1e5")
    ]


LYING = """
from benchmarks.transport import round as transport_round

async def lying(link):
    while True:
        (frame,) = await link.recv()
        await link.send([frame[1:]])

transport_round.echo = lying
try:
    transport_round.echoes(
        wanted=["1e3/rate"], name="uvloop", clients=1, connections=1, seconds=0.05, warm_up_s=0.01
    )
except RuntimeError as error:
    print(error)
"""


def test_a_server_that_answers_wrongly_is_found_out():
    """A fast wrong answer is no figure."""
    lines = run(LYING).stdout.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("ValueError: asked for 1 frames of 1000 bytes marked 0, got 1")


FAILING = """
from benchmarks.transport import round as transport_round

async def failing(link):
    await link.recv()
    raise LookupError("no such page")

transport_round.echo = failing
try:
    transport_round.echoes(
        wanted=["1e3/rate"], name="uvloop", clients=1, connections=1, seconds=0.05, warm_up_s=0.01
    )
except RuntimeError as error:
    print(error)
"""


def test_a_client_does_not_wait_for_a_server_that_failed():
    """The run goes on with the next contestant."""
    result = run(FAILING)
    assert len(result.stdout.splitlines()) == 1
    assert "ConnectionResetError" in result.stdout


@pytest.mark.needs("cc")
@pytest.mark.parametrize("echoes", [transport_epoll.echoes, transport_epoll.looking_echoes])
def test_the_ceiling_in_c_compiles_without_a_warning_and_answers(
    echoes: Callable[..., Figures],
):
    """What ours is held against as the most that could be had does run."""
    figures = echoes(wanted=["1e3/rate", "1e6/p50"], seconds=0.05, warm_up_s=0.01)
    assert sorted(figures) == ["1e3/p50", "1e3/p99", "1e3/rate", "1e6/p50", "1e6/p99", "1e6/rate"]
    assert all(value > 0 for value in figures.values())


def test_a_contestant_with_several_messages_has_a_line_for_each():
    """The table shows the spinning thread's share beside the requests."""
    figures = {"1e3/rate": 5.0, "1e3/kept": 0.25, "1e4/rate": 4.0}
    text = table.series_table([Series(Contestant("ours", "module:ours"), [figures])])
    head, *lines = text.splitlines()
    assert "hog kept" in head
    assert [line.split() for line in lines] == [
        ["ours", "1e3", "5", "-", "-", "-", "-", "0.25", "1"],
        ["ours", "1e4", "4", "-", "-", "-", "-", "-", "1"],
    ]


def test_the_table_of_the_gil_experiment_has_every_cell_once():
    """Nobody is left out of the experiment for being slow, or measured under another's name."""
    cells = transport_gil_table.cells()
    assert len(cells) == 7 * 4 - 2  # native handlers are not served over TLS
    assert len({contestant.name for contestant in cells.values()}) == len(cells)
    assert [claim.peers for claim in transport_gil_table.claims()] == [
        (contestant,) for contestant in cells.values()
    ]
    figures = {transport_gil_table.RATE: 1_234.5, transport_gil_table.KEPT: 0.5}
    series = {one.name: Series(one, [figures]) for one in cells.values()}
    series["forebay, p1c1, hog inside"] = Series(
        cells["forebay, its loop", "1 client"], failure="x"
    )
    head, _, first, *_ = transport_gil_table.markdown(series).splitlines()
    assert head == "|  | 1 client | 6 clients | 1, TLS | 6, TLS |"
    assert first.startswith("| forebay, its loop | skipped: x | 1,234/s, 50% |")


BESIDE_IDLE = """
from benchmarks.transport import scale as transport_scale
figures = transport_scale.echoes_beside_idle(
    wanted=["1e3/rate"], name="forebay", busy=2, idle=6, seconds=0.05, warm_up_s=0.01
)
print(sorted(name for name, value in figures.items() if value > 0))
"""


def test_echoes_beside_idle_connections_are_those_of_the_busy_ones():
    """What grows with connections that nobody uses is measured, and nothing else."""
    result = run(BESIDE_IDLE)
    assert result.returncode == 0, result.stderr
    names = ("cpu", "memory_mb", "p50", "p99", "rate")
    assert result.stdout.splitlines() == [str([f"1e3/{name}" for name in names])]
