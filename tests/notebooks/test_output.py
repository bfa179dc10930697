"""What appears in the cell that waits: output, progress, tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.kernel import Kernel
from tests.notebooks.scenario import in_kernel, owned_by, wait_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

APP = """%%writefile hedge.py
import os, time
import forebay

app = forebay.App("hedge")

@app.request()
def work(ctx: forebay.Context, steps: int = 20, text: str = "<b>bold</b>") -> str:
    for step in ctx.progress(range(steps), message=text, unit="steps"):
        print("step", step, flush=True)
        time.sleep(0.05)
    return "done " + text

@app.request()
def fail(text: str) -> None:
    raise ValueError(text)
"""

CLIENT = """
import forebay
import hedge
client = forebay.Client(app="hedge.py")
"""

MARKUP = "<script>alert(1)</script>"


@pytest.fixture(name="cells_of_app")
def _cells_of_app(tmp_path: Path):
    """Runs cells in a kernel that has a client, and ends the server after them."""

    def run(cells) -> None:
        async def with_server(kernel: Kernel) -> None:
            await kernel.expect(APP)
            await kernel.expect(CLIENT)
            try:
                await cells(kernel)
            finally:
                await kernel.run("client.stop(); client.wait_gone(10); client.close()")

        in_kernel(tmp_path, with_server)

    return run


def test_a_request_is_watched_in_its_cell(cells_of_app) -> None:
    """Its output as it comes, a bar that moves in place, its result; nothing of it is markup."""

    async def cells(kernel: Kernel) -> None:
        watched = await kernel.expect("print(client.submit(hedge.work).watch())")
        assert watched.text == "".join(f"step {n}\n" for n in range(20)) + "done <b>bold</b>\n"
        (bar,) = watched.html
        assert '<progress max="1" value="1.0000"></progress>' in bar
        assert "succeeded" in bar
        assert "&lt;b&gt;bold&lt;/b&gt;" in bar
        assert "<b>" not in bar
        updates = [one for kind, one in watched.messages if kind == "update_display_data"]
        assert 3 <= len(updates) <= 30
        assert any("running" in one["data"]["text/plain"] for one in updates)

    cells_of_app(cells)


def test_a_request_is_watched_by_await(cells_of_app) -> None:
    """The same on the kernel's loop."""

    async def cells(kernel: Kernel) -> None:
        watched = await kernel.expect(
            """
            async with forebay.AsyncClient(app="hedge.py") as later:
                request = await later.submit(hedge.work, 5, text="x")
                print(await request.watch())
                display(request)
            """
        )
        assert watched.text == "".join(f"step {n}\n" for n in range(5)) + "done x\n"
        assert "succeeded" in watched.html[0]
        assert "<td>succeeded</td>" in watched.html[1]

    cells_of_app(cells)


def test_watching_ends_with_its_time_and_raises_what_the_request_raised(cells_of_app) -> None:
    """As `result`: a deadline leaves it running, an error is the request's own."""

    async def cells(kernel: Kernel) -> None:
        late = await kernel.run("client.submit(hedge.work, 100).watch(timeout=0.3)")
        assert late.error.startswith("DeadlineError: request")
        assert "goes on" in late.error
        failed = await kernel.run(f"client.submit(hedge.fail, {MARKUP!r}).watch()")
        assert failed.error.startswith("RemoteValueError: " + MARKUP) or MARKUP in failed.error
        assert "failed" in failed.html[0]
        threads = await kernel.expect(
            "import threading\n"
            "print([one.name for one in threading.enumerate() if 'forebay-watch' in one.name])"
        )
        assert threads.text == "[]\n"

    cells_of_app(cells)


def test_requests_are_small_tables(cells_of_app) -> None:
    """A look at a request, and at a page of them; a value with markup is text."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(f"failed = client.submit(hedge.fail, {MARKUP!r}); failed.exception()")
        one = await kernel.expect("failed")
        page = await kernel.expect("client.list()")
        for shown in (one, page):
            (table,) = shown.html
            assert "<table>" in table
            assert "<td>failed</td>" in table
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in table
            for foreign in ("<script", "style=", "class="):
                assert foreign not in table
        assert one.plain[0].startswith("<Request ")
        empty = await kernel.expect("client.list(name='work')")
        assert "0 requests" in empty.html[0]

    cells_of_app(cells)


def test_a_request_whose_server_is_gone_is_still_shown(cells_of_app) -> None:
    """A table never raises, and never waits for long."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect("request = client.submit(hedge.work, 1); request.result()")
        await kernel.expect("client.stop(); client.wait_gone(10)")
        shown = await kernel.expect("request")
        assert "<td>work</td>" in shown.html[0]
        assert "<td>succeeded</td>" in shown.html[0]
        assert not wait_gone(owned_by(kernel.pid)), "a look started a server"

    cells_of_app(cells)


def test_a_pool_is_a_small_table(tmp_path: Path) -> None:
    """States, counts, and the leases with their holder and age."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(
            """
            import os
            import forebay
            class Marked(forebay.Service):
                def pid(self):
                    return os.getpid()
            Marked.__name__ = Marked.__qualname__ = "<i>Marked</i>"
            pool = forebay.ServicePool(max_size=3, name="<u>mine</u>")
            lease = pool.acquire(Marked, by_value=True)
            service = lease.__enter__()
            print(service.pid(), os.getpid())
            """
        )
        shown = await kernel.expect("pool")
        (table,) = shown.html
        assert "1 live, 0 idle, 1 leased, 0 callers wait" in table
        assert "<td>&lt;i&gt;Marked&lt;/i&gt;</td>" in table
        assert f"<td>leased</td><td>{kernel.pid}</td>" in table
        assert "<i>" not in table
        assert "<u>" not in table
        closed = await kernel.expect("lease.__exit__(None, None, None); pool.close(); pool")
        assert "ServicePool" in closed.html[0]

    in_kernel(tmp_path, cells)


def test_output_of_calls_appears_in_the_cell(tmp_path: Path) -> None:
    """Also what a program prints that a call has started; nothing goes to Jupyter's terminal."""

    async def cells(kernel: Kernel) -> None:
        ran = await kernel.expect(
            """
            import os, subprocess, sys, time
            import forebay
            def speak(n):
                print("call", n, flush=True)
                print("error", n, file=sys.stderr, flush=True)
                subprocess.run(["echo", f"program {n}"])
            with forebay.Executor(1, by_value=True) as executor:
                list(executor.map(speak, range(2)))
            time.sleep(0.5)
            """
        )
        written = ran.text + ran.stderr
        for n in range(2):
            for word in ("call", "error", "program"):
                assert f"{word} {n}\n" in written

    in_kernel(tmp_path, cells)


def test_output_of_a_service_is_on_its_lease(tmp_path: Path) -> None:
    """Where the page says that it is."""

    async def cells(kernel: Kernel) -> None:
        spoke = await kernel.expect(
            """
            import forebay
            class Speaker(forebay.Service):
                def speak(self):
                    print("spoken", flush=True)
            with forebay.acquire(Speaker, by_value=True) as speaker:
                speaker.speak()
                print(repr(speaker.lease.stderr))
                display(speaker)
            """
        )
        assert spoke.text == "'spoken\\n'\n"
        assert spoke.plain[0].startswith("<Speaker on lease:")

    in_kernel(tmp_path, cells)
