"""Scenes from a shell: commands against a real server with real workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

APPLICATION = '''
import os
import signal
import time

import forebay

app = forebay.App("scene")


class Tool(forebay.Service):
    pass


app.service(Tool, min_idle=1)


@app.request(lane="short")
def answer(number: int = 1) -> int:
    """Say a number again."""
    print("thinking of", number)
    return number * 1


@app.request()
def count(ctx: forebay.Context, to: int, pause: float = 0.05) -> int:
    for at in ctx.progress(range(to)):
        print("at", at, flush=True)
        time.sleep(pause)
    return to


@app.request(cron="0 3 1 1 *")
def yearly() -> None:
    return None


@app.request()
def die() -> None:
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


@app.request()
def fail(text: str) -> None:
    raise ValueError(text)
'''


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """A directory with an application, and an environment in which nothing else runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.application = home / "scene.py"
        self.application.write_text(APPLICATION)
        kept = {name: text for name, text in os.environ.items() if not name.startswith("FOREBAY_")}
        kept.pop("PYTHONUNBUFFERED", None)  # a line of output would be written in pieces
        self.environment = kept | {
            "XDG_RUNTIME_DIR": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "FOREBAY_STATE_DIR": str(home / "state"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *sys.path]),
        }

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "forebay.cli", *words],
            cwd=self.home,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,
        )

    def __call__(self, *words: str, typed: str | None = None) -> Done:
        """Run a command to its end."""
        process = self.start(*words, stdin=subprocess.PIPE)
        out, err = process.communicate(typed, timeout=40)
        return Done(process.returncode, out, err)

    def server(self) -> int:
        """The process of the server."""
        pid: int = json.loads(self("status", "--json").out)["pid"]
        return pid


@pytest.fixture
def shell() -> Iterator[Shell]:
    """What starts no server by itself; one that was started ends with the test."""
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        shell = Shell(Path(home))
        yield shell
        done = shell("stop", "--grace", "0s", "--json")
        assert done.code in (0, 3), done.err
        if not done.code:
            pid = json.loads(done.out)["pid"]
            wait_until(lambda: not Path(f"/proc/{pid}").exists())


def wait_until(is_so: Callable[[], bool]) -> None:
    """Look until it is so: a process that is not ours tells nobody when it has ended."""
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_run_starts_a_server_says_so_and_uses_it_again(shell: Shell) -> None:
    """The first command of a newcomer."""
    first = shell("run", "scene.py:answer", "--number", "7")
    assert (first.code, first.out) == (0, "7\n")
    assert "started a local server for scene.py:answer" in first.err
    assert "thinking of 7\n" in first.err
    second = shell("run", "answer", "--number", "8")
    assert (second.code, second.out) == (0, "8\n")
    assert "started" not in second.err
    assert "answer  Say a number again." in shell("run", "--help").out
    assert re.search(r"--number INT +\(1\)", shell("run", "answer", "--help").out)


def test_an_edit_is_what_runs_next(shell: Shell) -> None:
    """Old code never answers."""
    assert shell("run", "scene.py:answer", "--number", "2").out == "2\n"
    for factor in (2, 3):
        text = APPLICATION.replace("number * 1", f"number * {factor}")
        shell.application.write_text(text)
        assert shell("run", "scene.py:answer", "--number", "2").out == f"{2 * factor}\n"
    shell.application.write_text(
        APPLICATION.replace("(number: int = 1)", "(number: int = 1, more: int = 0)").replace(
            "number * 1", "number + more"
        )
    )
    assert shell("run", "scene.py", "answer", "--more", "5").out == "6\n"
    shell.application.write_text("this is no Python\n")
    done = shell("run", "scene.py:answer")
    assert (done.code, done.out) == (2, "")
    assert "SyntaxError" in done.err


def test_the_pool_of_a_server_is_looked_at_where_none_is_lent_alone(shell: Shell) -> None:
    """Who serves an application sees its services by the same command, without a path."""
    assert shell("run", "scene.py:answer").code == 0
    until = time.monotonic() + 10
    while not (listed := shell("pool", "ls", "--json").out):  # they are started meanwhile
        assert time.monotonic() < until
    assert json.loads(listed)["name"] == "Tool"


def test_no_server_is_started_where_that_is_forbidden(shell: Shell) -> None:
    """Exit code 3; and one that could not import the application says why."""
    assert shell("ps").code == 3
    done = shell("run", "--no-start", "scene.py:answer")
    assert (done.code, done.out) == (3, "")
    assert "start one with: forebay serve scene.py" in done.err
    shell.application.write_text("import nothing_of_this_name\n")
    done = shell("run", "scene.py:answer")
    assert done.code == 2
    assert "No module named 'nothing_of_this_name'" in done.err


def test_a_request_is_followed_and_cancelled_from_another_shell(shell: Shell) -> None:
    """Exit code 6 for both who wait."""
    id_ = shell("submit", "scene.py:count", "--to", "10000").out.strip()
    following = shell.start("logs", "-f", id_)
    assert following.stdout is not None
    assert following.stdout.readline() == "at 0\n"
    assert shell("ps", "--running").out.splitlines()[1].split()[:3] == [id_, "count", "running"]
    assert "running: for" in shell("why", id_).out
    assert shell("cancel", id_).code == 0
    assert shell("wait", id_).code == 6
    following.communicate(timeout=20)
    assert following.returncode == 6


def test_a_death_is_told_with_its_cause(shell: Shell) -> None:
    """Exit code 7, the signal, and what it wrote last."""
    done = shell("run", "scene.py:die")
    assert done.code == 7
    assert "was killed by SIGKILL" in done.err
    assert "last words" in done.err
    assert "forebay why" in done.err
    assert "SIGKILL" in shell("why", "@last").out


def test_who_waits_follows_when_the_server_is_killed(shell: Shell) -> None:
    """What had begun fails with that cause, and what waited runs; nothing is lost."""
    running = shell.start("run", "--quiet", "scene.py:count", "--to", "10000")
    wait_until(lambda: "running" in shell("ps", "--app", "scene.py").out)
    waiting = shell("submit", "--app", "scene.py", "answer", "--delay", "3s").out.strip()
    os.kill(shell.server(), signal.SIGKILL)
    _, err = running.communicate(timeout=40)
    assert "had begun when its server died" in err
    assert running.returncode == 7
    assert shell("result", "--app", "scene.py", waiting).out == "1\n"
    assert len(shell("ps", "--json").out.splitlines()) == 2


def test_replay_prints_the_result_alone_on_stdout(shell: Shell) -> None:
    """As `run` does; its output is on stderr."""
    assert shell("run", "scene.py:answer", "--number", "4").code == 0
    done = shell("replay", "@last")
    assert (done.code, done.out, done.err) == (0, "4\n", "thinking of 4\n")
    done = shell("replay", "@last", "--json")
    assert json.loads(done.out) == {"schema": 1, "name": "answer", "result": 4}


def test_a_target_that_is_no_application_leaves_no_server(shell: Shell) -> None:
    """It would be the one that was started last, which a bare name means."""
    assert shell("run", "scene.py:answer").code == 0
    done = shell("run", "json:dumps")
    assert (done.code, done.out) == (2, "")
    assert "json:dumps is neither a forebay.App nor a request of one" in done.err
    assert "Traceback" not in done.err
    assert shell("run", "answer", "--number", "3").out == "3\n"


def test_schedules_are_listed_and_rest(shell: Shell) -> None:
    """When each was submitted last, and when it is next."""
    assert shell("run", "scene.py:answer").code == 0
    (line,) = shell("cron").out.splitlines()[1:]
    assert re.fullmatch(r"yearly +0 3 1 1 \* +never +in \d+ [dhm].*", line)
    (line,) = shell("cron", "pause", "yearly").out.splitlines()[1:]
    assert line.endswith("paused")


def test_replay_stops_in_the_debugger_where_it_raises(shell: Shell) -> None:
    """With the arguments that it had."""
    assert shell("run", "scene.py:fail", "--text", "odd").code == 1
    done = shell("replay", "@last", "--pdb", typed="p text\nq\n")
    assert "ValueError: odd" in done.err
    assert "'odd'" in done.out
    assert "the code has changed" not in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_serve_says_where_and_ends_by_a_signal(shell: Shell, number: int, code: int) -> None:
    """What runs may end first."""
    serving = shell.start("serve", "scene.py")
    assert serving.stdout is not None
    line = serving.stdout.readline()
    assert line.startswith(f"serving scene at {shell.home}/forebay/scene-")
    id_ = shell("submit", "count", "--to", "10").out.strip()
    following = shell.start("logs", "-f", id_)
    assert following.stdout is not None
    assert following.stdout.readline() == "at 0\n"
    serving.send_signal(number)
    _, err = serving.communicate(timeout=40)
    assert serving.returncode == code
    assert "what runs has 60 s to end" in err
    rest = following.stdout.read()
    following.communicate(timeout=20)
    assert (following.returncode, rest[-5:]) == (0, "at 9\n")
    assert shell("status", "--quiet").code == 3


def test_a_server_outlives_who_read_its_events(shell: Shell) -> None:
    """`serve --json | head -1` left no server, and took the work that ran with it."""
    with shell.start("serve", "scene.py", "--json") as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            while json.loads(process.stdout.readline())["event"] != "ready":
                pass
            id_ = shell("submit", "scene.py:count", "--to", "20").out.strip()
            process.stdout.close()
            shell.application.write_text(APPLICATION + "\n# edited\n")
            process.send_signal(signal.SIGHUP)
            assert "events are not printed any more" in process.stderr.readline()
            assert shell("wait", id_, "--timeout", "30s").code == 0
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def test_a_target_that_names_no_request_runs_none(shell: Shell) -> None:
    """`run prints.py:nope` ran the only request of the application, whatever it was."""
    shell.application.write_text(
        'import forebay\napp = forebay.App("one")\n'
        '@app.request\ndef wipe() -> str:\n    return "wiped"\n'
    )
    assert shell("run", "scene.py:app").out == "wiped\n"
    assert shell("run", "scene.py").out == "wiped\n"
    done = shell("run", "scene.py:wip")
    assert (done.code, done.out) == (4, "")
    assert "'wip' is no request of application 'one'; did you mean 'wipe'?" in done.err


def test_a_timeout_covers_the_start_of_the_server(shell: Shell) -> None:
    """`--timeout 3s` ended after 30 s where the import was slow."""
    shell.application.write_text("import time\ntime.sleep(25)\n" + APPLICATION)
    began = time.monotonic()
    done = shell("run", "scene.py:answer", "--timeout", "2s")
    assert done.code == 124
    assert time.monotonic() - began < 20
    assert "was not ready within 2 s" in done.err


def test_a_parameter_called_timeout_limits_no_wait(shell: Shell) -> None:
    """The command gave up after what was meant for the request."""
    nap = "def nap(timeout: float) -> float:\n    time.sleep(1.5)\n    return timeout\n"
    shell.application.write_text(f"{APPLICATION}\n\n@app.request()\n{nap}")
    assert shell("run", "scene.py:answer").code == 0  # a server runs
    done = shell("run", "scene.py:nap", "--timeout", "0.2")
    assert (done.code, done.out) == (0, "0.2\n"), done


def test_a_mistyped_option_is_named_beside_the_one_that_is_missing(shell: Shell) -> None:
    """`--cuont 5` was told of the missing `--to` alone."""
    done = shell("run", "scene.py:count", "--ot", "5")
    assert done.code == 2
    assert "required: --to; unrecognized arguments: --ot; did you mean '--to'?" in done.err
    twice = shell("why", "nosuchid").err
    assert "'nosuchid'" in twice
    assert twice.count("characters of an id") == 1, twice


def test_an_app_named_behind_the_request_is_said_to_be_misplaced(shell: Shell) -> None:
    """`run only_alpha --app alpha.py` blamed the application that was started last."""
    assert shell("run", "scene.py:answer").code == 0
    done = shell("run", "elsewhere", "--app", "other.py")
    assert done.code == 2
    assert "give them before its name" in done.err
