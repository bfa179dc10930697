from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import time
import zipapp
from pathlib import Path

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.scripts import ROOT, run, write

DEFINES = """
    import forebay

    class Greeter(forebay.Service):
        def greet(self, name):
            return f"hello {name} from {__name__}"
"""
GREETS = """
    with forebay.acquire(Greeter) as greeter:
        print(greeter.greet("world"))
"""


def guarded(program: str) -> str:
    """The same under the guard."""
    body = textwrap.indent(textwrap.dedent(program).strip(), " " * 8)
    return f"    if __name__ == '__main__':\n{body}\n"


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    """What an exception said that nobody caught."""
    return ended.stderr.strip().splitlines()[-1]


def test_a_class_of_a_script_is_a_service(tmp_path: Path) -> None:
    """The first program that anybody writes is one file."""
    ended = run(write(tmp_path / "script.py", DEFINES + guarded(GREETS)), cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("hello world from __mp_main__\n", "")


def test_a_script_runs_from_another_directory(tmp_path: Path) -> None:
    """What a script imports from beside itself is found by its template too."""
    write(tmp_path / "app/words.py", "GREETING = 'good morning'\n")
    program = """
        import forebay
        import words

        class Greeter(forebay.Service):
            def greet(self):
                return words.GREETING

        if __name__ == "__main__":
            with forebay.acquire(Greeter) as greeter:
                print(greeter.greet())
    """
    write(tmp_path / "app/script.py", program)
    (tmp_path / "elsewhere").mkdir()
    ended = run("../app/script.py", cwd=tmp_path / "elsewhere")
    assert (ended.stdout, ended.stderr) == ("good morning\n", "")


def test_a_class_of_a_module_run_by_name_is_a_service(tmp_path: Path) -> None:
    """`python -m package.module` works, relative imports included."""
    write(tmp_path / "package/__init__.py", "")
    write(tmp_path / "package/words.py", "GREETING = 'good evening'\n")
    program = """
        import forebay
        from .words import GREETING

        class Greeter(forebay.Service):
            def greet(self):
                return GREETING

        if __name__ == "__main__":
            with forebay.acquire(Greeter) as greeter:
                print(greeter.greet())
    """
    write(tmp_path / "package/module.py", program)
    ended = run("-m", "package.module", cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("good evening\n", "")


def test_a_class_of_a_package_run_by_name_is_a_service(tmp_path: Path) -> None:
    """`python -m package` too, whose module is `package.__main__`."""
    write(tmp_path / "package/__init__.py", "")
    write(tmp_path / "package/__main__.py", DEFINES + guarded(GREETS))
    ended = run("-m", "package", cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("hello world from __mp_main__\n", "")


def test_arguments_of_a_scripts_own_types_arrive(tmp_path: Path) -> None:
    """An object of a class of the main module travels both ways."""
    program = """
        import dataclasses
        import forebay

        @dataclasses.dataclass
        class Point:
            x: int

        class Mover(forebay.Service):
            def __init__(self, by):
                self.by = by
            def move(self, point):
                return Point(point.x + self.by.x)

        if __name__ == "__main__":
            with forebay.acquire(Mover.spec(Point(40))) as mover:
                print(mover.move(Point(2)))
    """
    ended = run(write(tmp_path / "script.py", program), cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("Point(x=42)\n", "")


def test_a_script_without_a_guard_is_told(tmp_path: Path) -> None:
    """No hang and no storm of processes: one error that shows the line to write."""
    began = time.monotonic()
    ended = run(write(tmp_path / "script.py", DEFINES + GREETS), cwd=tmp_path)
    assert time.monotonic() - began < 10
    assert ended.returncode == 1
    assert "ConfigError" in ended.stderr
    assert "if __name__ == '__main__':" in ended.stderr
    assert ended.stdout == ""


def test_a_script_without_a_guard_that_catches_everything_is_told(tmp_path: Path) -> None:
    """Even where the module swallows the refusal, the program neither hangs nor multiplies."""
    program = (
        DEFINES
        + """
    import os
    with open("runs", "a") as file:
        file.write("run\\n")
    try:
        with forebay.acquire(Greeter, timeout=10) as greeter:
            print(greeter.greet("world"))
    except Exception as error:
        print(type(error).__name__)
    """
    )
    ended = run(write(tmp_path / "script.py", program), cwd=tmp_path)
    assert ended.returncode == 0
    assert (tmp_path / "runs").read_text().count("run") <= 4
    assert ended.stdout in ("ConfigError\n", "hello world from __mp_main__\n")


def test_a_class_in_a_function_is_refused(pool: forebay.ServicePool) -> None:
    """Another process cannot find it; the message says what can be done."""

    class Local(forebay.Service):
        def ping(self) -> str:
            return "pong"

    with pytest.raises(forebay.ConfigError, match=r"inside a function.*by_value=True"):
        pool.acquire(Local)


def test_a_class_in_a_function_goes_by_value(pool: forebay.ServicePool) -> None:
    """Asked for, the class itself travels, with what it refers to."""
    pytest.importorskip(
        "cloudpickle", reason="cloudpickle is not installed: pip install cloudpickle"
    )
    factor = 6

    class Local(forebay.Service):
        def __init__(self, number: int) -> None:
            self.number = number

        def product(self) -> int:
            return self.number * factor

    with pool.acquire(Local.spec(7), by_value=True) as local:
        assert local.product() == 42


@pytest.mark.parametrize("how", ["-c", "stdin"])
def test_a_class_typed_in_is_refused(how: str, tmp_path: Path) -> None:
    """An interactive session has no file to import; the message says what to do."""
    program = textwrap.dedent(DEFINES) + textwrap.dedent(GREETS)
    arguments, stdin = (["-c", program], None) if how == "-c" else (["-"], program)
    ended = run(*arguments, cwd=tmp_path, stdin=stdin)
    assert ended.returncode == 1
    assert "ConfigError: service class Greeter was typed into" in last_line(ended)
    assert "by_value=True" in last_line(ended)


def test_a_class_typed_in_goes_by_value(tmp_path: Path) -> None:
    """A notebook can use services when it asks for it."""
    pytest.importorskip(
        "cloudpickle", reason="cloudpickle is not installed: pip install cloudpickle"
    )
    program = textwrap.dedent(DEFINES) + textwrap.dedent(GREETS).replace(
        "(Greeter)", "(Greeter, by_value=True)"
    )
    ended = run("-", cwd=tmp_path, stdin=program)
    assert (ended.stdout, ended.stderr) == ("hello world from __main__\n", "")


def imported(
    directory: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> type[forebay.Service]:
    """A service class that says it is of a module with this text, never imported here."""
    write(directory / f"{directory.name}_module.py", module)
    monkeypatch.syspath_prepend(directory)
    name = f"{directory.name}_module"
    return type("Hidden", (forebay.Service,), {"__module__": name, "ping": lambda _: "pong"})


def expect_refusal(hidden: type[forebay.Service], *parts: str) -> None:
    """Acquiring raises ConfigError with these words, twice over, and leaves nothing behind."""
    with forebay.ServicePool(max_size=1) as pool:
        for _ in range(2):
            with pytest.raises(forebay.ConfigError) as caught, pool.acquire(hidden, timeout=10):
                pass
            for part in parts:
                assert part in str(caught.value)
        assert pool.stats()["live"] == 0


def test_a_module_that_starts_a_thread_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process with threads cannot be forked; the message names them."""
    module = """
        import threading, forebay
        threading.Thread(target=threading.Event().wait, name="heartbeat", daemon=True).start()
        class Hidden(forebay.Service):
            def ping(self):
                return "pong"
    """
    hidden = imported(tmp_path, module, monkeypatch)
    expect_refusal(hidden, "heartbeat", "cannot be forked", "__init__")


def test_a_module_that_raises_is_told_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of an import in another process reads as if it had been here."""
    module = """
        def load():
            raise LookupError("no licence found")
        load()
    """
    hidden = imported(tmp_path, module, monkeypatch)
    expect_refusal(hidden, "no licence found", "in load", "cannot import")


@pytest.mark.parametrize("leave", ["sys.exit(0)", "raise KeyboardInterrupt", "os._exit(3)"])
def test_a_module_that_ends_its_process_is_told(
    pool_of: PoolOf, leave: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that exits when it is imported is an error with the reason, never a hang."""
    hidden = imported(tmp_path, f"import os, sys\nprint('bye', flush=True)\n{leave}\n", monkeypatch)
    with pool_of(max_size=1) as pool:
        with pytest.raises(forebay.Error) as caught, pool.acquire(hidden, timeout=10):
            pass
        if "_exit" in leave:
            assert isinstance(caught.value, forebay.DiedError)
            assert caught.value.cause == "template_died"
            assert "code 3" in str(caught.value)
            assert "bye" in str(caught.value)
        else:
            assert isinstance(caught.value, forebay.ConfigError)
            assert leave in str(caught.value)
        assert pool.stats()["live"] == 0


def test_a_module_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class whose module another process cannot find."""
    hidden = imported(tmp_path, "", monkeypatch)
    hidden.__module__ = "there_is_no_such_module"
    expect_refusal(hidden, "there_is_no_such_module", "ModuleNotFoundError")


def test_a_module_without_the_class_is_told(
    pool_of: PoolOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that was made at run time and is no attribute of its module."""
    hidden = imported(tmp_path, "", monkeypatch)
    with pool_of(max_size=1) as pool:
        with pytest.raises(AttributeError, match="Hidden") as caught, pool.acquire(hidden):
            pass
        assert isinstance(caught.value, forebay.RemoteError)
        assert pool.stats()["live"] == 0


def test_a_module_whose_import_hangs_is_ended(
    pool_of: PoolOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`start_timeout` counts the import too; the pool is as good as before."""
    hidden = imported(tmp_path, "import time\ntime.sleep(3600)\n", monkeypatch)
    with pool_of(max_size=1, start_timeout=0.5) as pool:
        raising = pytest.raises(forebay.DiedError, match="not ready in time")
        with raising as caught, pool.acquire(hidden, timeout=10):
            pass
        assert caught.value.cause == "start_deadline"
        assert pool.stats()["live"] == 0
        with pytest.raises(forebay.DeadlineError), pool.acquire(hidden, timeout=0.1):
            pass


def test_a_client_that_ignores_its_children_is_told_of_deaths(tmp_path: Path) -> None:
    """SIGCHLD that is ignored is inherited by programs; the keeper must be able to reap."""
    script = tmp_path / "ignores.py"
    script.write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from forebay.errors import DiedError\n"
        "from forebay.pool import Service, ServicePool\n"
        "class Echo(Service):\n"
        "    def echo(self, value): return value\n"
        "if __name__ == '__main__':\n"
        "    with ServicePool(max_size=1) as pool:\n"
        "        with pool.acquire(Echo) as echo:\n"
        "            os.kill(echo.lease.pid, signal.SIGKILL)\n"
        "            try:\n"
        "                echo.echo(1)\n"
        "            except DiedError as error:\n"
        "                print(error.signal)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr) == ("9\n", "")


def test_a_program_that_is_a_directory_has_services(tmp_path: Path) -> None:
    """`python app/` with a `__main__.py` is how many tools are started."""
    write(tmp_path / "app" / "__main__.py", DEFINES + guarded(GREETS))
    ended = run("app", cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("hello world from __mp_main__\n", "")


def test_a_program_that_is_an_archive_has_services(tmp_path: Path) -> None:
    """A zipapp is one file to copy to a machine; its services must start there."""
    write(tmp_path / "app" / "__main__.py", DEFINES + guarded(GREETS))
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    shutil.rmtree(tmp_path / "app")
    ended = run("app.pyz", cwd=tmp_path)
    assert (ended.stdout, ended.stderr) == ("hello world from __mp_main__\n", "")


def test_a_class_under_the_main_guard_is_refused_with_advice(tmp_path: Path) -> None:
    """A newcomer who puts the class beside its use learns that it belongs above."""
    program = """
        import forebay

        if __name__ == "__main__":
            class Greeter(forebay.Service):
                def greet(self):
                    return "never"

            with forebay.acquire(Greeter) as greeter:
                greeter.greet()
    """
    write(tmp_path / "guarded.py", program)
    ended = run("guarded.py", cwd=tmp_path)
    assert "outside of `if __name__ == '__main__':`" in ended.stderr
    assert "'Greeter'" in ended.stderr


def test_a_lambda_is_refused_with_advice(pool: forebay.ServicePool) -> None:
    """It has no name by which a service could find it."""
    with pytest.raises(forebay.ConfigError, match=r"a lambda has no name.*write a function"):
        pool.acquire(forebay.factory(lambda: []))


def test_options_of_the_interpreter_reach_services(tmp_path: Path) -> None:
    """Code that runs under -O or -X dev in the program runs so in its services."""
    program = """
        import sys, forebay

        class Told(forebay.Service):
            def flags(self):
                return sys.flags.optimize, sys.flags.dev_mode, sys.flags.isolated

        if __name__ == "__main__":
            sys.path.insert(0, sys.argv[1])
            with forebay.acquire(Told) as told:
                print(*told.flags())
    """
    write(tmp_path / "flags.py", program)
    ended = run("-O", "-X", "dev", "flags.py", ROOT, cwd=tmp_path)
    assert ended.stdout == "1 True 0\n", ended.stderr
    ended = run("-OO", "-I", "flags.py", ROOT, cwd=tmp_path)
    assert ended.stdout == "2 False 1\n", ended.stderr
