"""Classes and functions of cells in other processes, and cells that run again."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.notebooks.kernel import Kernel
from tests.notebooks.scenario import alive, in_kernel, owned_by, wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

GREETER = """
import dataclasses, os
import forebay

GREETING = "hello"

def shout(text):
    return text.upper()

@dataclasses.dataclass
class Letter:
    text: str

class Greeter(forebay.Service):
    def __init__(self, end="!"):
        self.end = end
    def greet(self, name):
        return Letter(shout(f"{GREETING} {name}{self.end}"))
    def read(self, letter: Letter):
        return letter.text
    def pid(self):
        return os.getpid()
    def reset(self):
        pass

pool = forebay.ServicePool(max_size=2)
"""

GREETS = """
with pool.acquire(Greeter, by_value=True) as greeter:
    print(greeter.greet("you"), greeter.pid())
"""


def test_a_class_of_a_cell_is_refused_with_what_to_type(tmp_path: Path) -> None:
    """Nobody's class goes by value unasked, and nobody has to search for how."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(GREETER)
        refused = await kernel.run("with pool.acquire(Greeter) as greeter: pass")
        assert refused.error.startswith("ConfigError: service class Greeter was typed into")
        assert "by_value=True" in refused.error
        refused = await kernel.run("forebay.Executor(1).submit(shout, 'a')")
        assert refused.error.startswith("ConfigError: function shout is defined in an interactive")
        assert "by_value=True" in refused.error

    in_kernel(tmp_path, cells)


def test_a_class_goes_by_value_with_what_it_uses(tmp_path: Path) -> None:
    """Variables, functions and classes of other cells; instances go and come by their name."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(GREETER)
        greeted = await kernel.expect(
            """
            with pool.acquire(Greeter.spec(end="?"), by_value=True) as greeter:
                letter = greeter.greet("you")
                print(letter, type(letter) is Letter, greeter.read(Letter("there and back")))
            """
        )
        assert greeted.text == "Letter(text='HELLO YOU?') True there and back\n"

    in_kernel(tmp_path, cells)


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ('GREETING = "good day"', "GOOD DAY YOU!"),
        ('def shout(text):\n    return text + " and you"', "hello you! and you"),
        (
            "class Greeter(forebay.Service):\n"
            "    def greet(self, name):\n        return Letter('new')\n"
            "    def pid(self):\n        return os.getpid()",
            "new",
        ),
    ],
    ids=["variable", "function", "class"],
)
def test_a_cell_that_runs_again_gives_new_services_and_ends_the_old(
    again: str, expected: str, tmp_path: Path
) -> None:
    """Nobody debugs for an hour what an old process still runs."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(GREETER)
        first = await kernel.expect(GREETS)
        old = int(first.text.split()[-1])
        await kernel.expect(again)
        second = await kernel.expect(GREETS)
        text, new = second.text.rsplit(maxsplit=1)
        assert text == f"Letter(text='{expected}')"
        assert int(new) != old
        assert not wait_gone({old})
        states = await kernel.expect("print([one['state'] for one in pool.services()])")
        assert states.text == "['idle']\n"

    in_kernel(tmp_path, cells)


def test_a_service_that_is_leased_while_its_class_changes_ends_with_its_lease(
    tmp_path: Path,
) -> None:
    """The holder keeps what it acquired; nobody else gets it."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(GREETER)
        await kernel.expect("held = pool.acquire(Greeter, by_value=True); old = held.__enter__()")
        pid = int((await kernel.expect("print(old.pid())")).text)
        await kernel.expect('GREETING = "bye"')
        assert "BYE YOU!" in (await kernel.expect(GREETS)).text
        assert "HELLO ME!" in (await kernel.expect('print(old.greet("me"))')).text
        assert alive(pid)
        await kernel.expect("held.__exit__(None, None, None)")
        assert not wait_gone({pid})

    in_kernel(tmp_path, cells)


def test_a_cell_that_defines_the_same_again_keeps_its_services(tmp_path: Path) -> None:
    """Running all cells again does not make everything cold."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(GREETER)
        first = await kernel.expect(GREETS)
        await kernel.expect('GREETING = "hel" + "lo"')
        assert (await kernel.expect(GREETS)).text == first.text

    in_kernel(tmp_path, cells)


def test_what_cannot_go_by_value_is_named(tmp_path: Path) -> None:
    """Of ten variables one is a socket, and the message says which one, and who uses it."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(
            """
            import threading
            import forebay

            guard = threading.Lock()

            def locked():
                with guard:
                    return 1

            class Locked(forebay.Service):
                def call(self):
                    return locked()

            class Owner(forebay.Service):
                own = threading.Lock()

            table = bytes(17 << 20)

            class Large(forebay.Service):
                def call(self):
                    return len(table)
            """
        )
        refused = await kernel.run("forebay.acquire(Locked, by_value=True)")
        assert refused.error.startswith(
            "ConfigError: Locked cannot go by value: locked uses 'guard', a _thread.lock"
        )
        refused = await kernel.run("forebay.acquire(Owner, by_value=True)")
        assert "Owner has 'own', a _thread.lock" in refused.error
        refused = await kernel.run("forebay.acquire(Large, by_value=True)")
        assert refused.error.startswith("LimitError: Large by value has 178")
        assert "of 'table', which Large.call uses" in refused.error
        refused = await kernel.run(
            "with forebay.Executor(1, by_value=True) as executor: executor.submit(locked).result()"
        )
        assert "locked uses 'guard'" in refused.error

    in_kernel(tmp_path, cells)


def test_functions_of_cells_run_in_an_executor(tmp_path: Path) -> None:
    """With their variables, lambdas, classes, an initializer, and requests of an App."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(GREETER)
        answers = await kernel.expect(
            """
            app = forebay.App("cells")
            FACTOR = 3
            begun = None

            @app.request()
            def scaled(ctx: forebay.Context, number: int) -> int:
                return FACTOR * number

            def begin(value):
                global begun
                begun = value

            def state():
                return begun

            def send(letter):
                return Letter(letter.text + GREETING)

            class OwnError(Exception):
                pass

            def fail():
                raise OwnError("mine")

            with forebay.Executor(
                2, by_value=True, initializer=begin, initargs=(Letter("begun"),)
            ) as executor:
                print(executor.submit(scaled, number=2).result())
                print(list(executor.map(lambda n: n * FACTOR, range(4), chunksize=2)))
                print(executor.submit(send, Letter("I say ")).result() == Letter("I say hello"))
                print(executor.submit(state).result())
                FACTOR = 5
                print(executor.submit(scaled, number=2).result())
                print(repr(executor.submit(fail).exception()))
            """
        )
        assert answers.text.splitlines() == [
            "6",
            "[0, 3, 6, 9]",
            "True",
            "Letter(text='begun')",
            "10",
            "OwnError('mine')",
        ]

    in_kernel(tmp_path, cells)


def test_an_application_of_a_cell_is_refused_with_the_line_to_type(tmp_path: Path) -> None:
    """A server that starts again could not find it; a file that a cell wrote it can."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(
            """
            import forebay
            app = forebay.App("cells")

            @app.request()
            def tune(n: int) -> int:
                return n
            """
        )
        for submit in ("forebay.Client().submit(tune, 1)", "await later.submit(tune, 1)"):
            refused = await kernel.run(f"later = forebay.AsyncClient()\n{submit}")
            assert refused.error.startswith("ConfigError: request 'tune' was typed into")
            assert "%%writefile app.py" in refused.error
            assert "from app import tune" in refused.error

    in_kernel(tmp_path, cells)


def test_await_at_the_top_of_a_cell(tmp_path: Path) -> None:
    """The asynchronous interface runs on the kernel's loop, cell after cell."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(GREETER)
        source = textwrap.dedent(
            """
            async with pool.acquire(Greeter, by_value=True) as greeter:
                print((await greeter.greet("you")).text)
            """
        )
        for _ in range(2):
            assert (await kernel.expect(source)).text == "HELLO YOU!\n"
        assert (await kernel.expect(GREETS)).text.startswith("Letter(text='HELLO YOU!')")

    in_kernel(tmp_path, cells)


def test_a_class_is_kept_ready_by_value(tmp_path: Path) -> None:
    """`warm` takes what `acquire` takes, and stops with the definition."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(GREETER)
        await kernel.expect("pool.warm(Greeter, 1, by_value=True)")
        first = await kernel.expect(GREETS)
        assert "HELLO" in first.text
        assert len(owned_by(kernel.pid)) >= 3  # keeper, template, service
        await kernel.expect('GREETING = "bye"')
        assert "BYE" in (await kernel.expect(GREETS)).text
        assert not wait_gone({int(first.text.split()[-1])})

    in_kernel(tmp_path, cells)
