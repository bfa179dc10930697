"""Commands about requests: what they print, and how they exit."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forebay.cli import main
from forebay.executor import Client
from tests.executor.client_fixtures import client, server
from tests.executor.small_server import SmallServer

__all__ = ["client", "server"]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Forebay = Callable[..., Done]


@pytest.fixture
def forebay(
    server: SmallServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Forebay:
    """Runs a command against the server."""
    monkeypatch.setenv("FOREBAY_URL", "")

    def run(command: str, *rest: str) -> Done:
        code = main([command, "--url", server.url, *rest])
        told = capsys.readouterr()
        return Done(code, told.out, told.err)

    return run


def told(done: Done) -> Any:
    return json.loads(done.out)


def test_run_prints_the_result_alone_on_stdout(forebay: Forebay) -> None:
    """So that a script can use it; the log is on stderr."""
    done = forebay("run", "echo", "--first", "7")
    assert (done.code, done.out) == (0, '{"first": 7}\n')
    assert "grün\nand blue\n" in done.err
    assert "echo 000000000001: 25% (1 of 4 row), m\n" in done.err


def test_arguments_are_read_as_the_manifest_types_them(forebay: Forebay) -> None:
    """A number is a number, and text that is JSON is what it says."""
    words = "--first 7 --second [1] --learning-rate 1e-3 --no-loud --mode quick --seeds 1 2 --table"
    done = forebay("run", "--progress", "none", "echo", *words.split(), '{"a": 1}')
    assert told(done) == {
        "first": 7,
        "second": [1],
        "learning_rate": 0.001,
        "loud": False,
        "mode": "quick",
        "seeds": [1, 2],
        "table": {"a": 1},
    }
    assert forebay("run", "echo", "--second", "two", "--quiet") == (0, '{"second": "two"}\n', "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["echo", "--first", "x"], "argument --first: invalid int value: 'x'"),
        (["echo", "--frist", "1"], "did you mean '--first'?"),
        (["echo", "--mode", "fast"], "invalid choice: 'fast'"),
        (
            ["--timeout", "soon", "echo"],
            "argument --timeout: time 'soon' cannot be read; write a number",
        ),
        (
            ["need", "--path", "x", "--timeout", "3x"],
            "argument --timeout: time '3x': unknown unit 'x'",
        ),
        (["--priority", "9" * 20, "echo"], f"priority is {'9' * 20}; give a number from"),
        (["--memory", f"{'9' * 20}GB", "echo"], "is above 9223372036854775807 bytes"),
        (["--submitter", "\udcff", "echo"], "surrogates not allowed"),
        (["echo", "--second", "\udcff"], "surrogates not allowed"),
        (["need"], "the following arguments are required: --path"),
        (["echo", "--url", "unix:///x"], "give them before its name"),
        ([], "the name of a request is missing"),
    ],
    ids=lambda one: one[-1] if isinstance(one, list) and one else "",
)
def test_a_mistake_is_found_before_anything_is_submitted(
    forebay: Forebay, client: Client, words: list[str], message: str
) -> None:
    """Exit code 2, and the server has nothing."""
    done = forebay("run", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert client.list() == []


def test_an_unknown_request_gets_the_nearest_name(forebay: Forebay) -> None:
    """Exit code 4: there is no such thing."""
    done = forebay("submit", "ecko")
    assert done.code == 4
    assert "has no request 'ecko'; did you mean 'echo'?" in done.err


def test_the_help_of_a_request_is_made_from_its_manifest(forebay: Forebay) -> None:
    """Its documentation, its types and its defaults, without importing it."""
    code, shown, _ = forebay("run", "--no-start", "echo", "--help")
    assert code == 0
    assert shown.startswith("usage: forebay run echo")
    assert "All of them, 100 % of the time." in shown
    assert re.search(r"--first INT +how many \(1\)", shown)
    assert "--loud, --no-loud" in shown
    assert "  forebay run need --path ..." in forebay("run", "need", "-h").out


def test_a_parameter_hides_an_option_of_its_name(forebay: Forebay) -> None:
    """The option is given before the request's name."""
    assert told(forebay("run", "--timeout", "20", "echo", "--timeout", "5")) == {"timeout": "5"}
    assert told(forebay("run", "--timeout", "20", "echo", "--timeout", "soon")) == {
        "timeout": "soon"
    }


def test_run_async_and_submit_print_the_id_alone(forebay: Forebay, client: Client) -> None:
    """For scripts; the request goes on."""
    done = forebay("submit", "hold")
    assert done == (0, "000000000001\n", "")
    assert forebay("run", "--async", "hold") == (0, "000000000002\n", "")
    assert told(forebay("submit", "--json", "hold"))["id"] == "000000000003"
    assert client.get("000000000001").status() == "running"


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("raise", 1, "line 1\nforebay: request 000000000001 raised OddError: app.OddError: odd"),
        ("die", 7, "was ended for its memory at 310 MB of private memory, the limit is 300 MB"),
        ("cancelled", 6, "was cancelled"),
        ("late", 1, "ran longer than the 2.5 s"),
        ("refuse", 5, "limit it is; do otherwise"),
        ("full", 5, "store it is; do otherwise"),
        ("vanish", 3, "the server went away before it said whether it had accepted the request"),
    ],
)
def test_the_exit_code_is_that_of_the_request(
    forebay: Forebay, name: str, code: int, words: str
) -> None:
    """A script can tell a death from a failure and from a refusal."""
    done = forebay("run", "--progress", "none", name)
    assert done.code == code
    assert words in done.err
    assert done.out == ""


def test_an_end_is_one_object_where_json_is_asked_for(forebay: Forebay) -> None:
    """With the result, or with the error."""
    good = told(forebay("run", "--json", "echo", "--first", "1"))
    assert (good["schema"], good["status"], good["result"]) == (1, "succeeded", {"first": 1})
    assert good["run_s"] == 0.25
    bad = forebay("run", "--json", "raise")
    assert bad.code == 1
    assert told(bad)["error"]["code"] == "failed"
    assert told(bad)["failure"]["kind"] == "raised"


@pytest.mark.parametrize(("name", "code", "word"), [("full", 5, "store"), ("refuse", 5, "limit")])
def test_a_refusal_is_one_object_too(forebay: Forebay, name: str, code: int, word: str) -> None:
    """It has no id, because it never was."""
    done = forebay("run", "--json", name)
    assert done.code == code
    assert (told(done)["status"], told(done)["error"]["code"]) == ("refused", word)
    assert "id" not in told(done)


def test_time_that_runs_out_leaves_the_request_and_says_how_to_go_on(forebay: Forebay) -> None:
    """Exit code 124."""
    done = forebay("run", "--timeout", "0.1", "hold")
    assert done.code == 124
    assert "000000000001 goes on; to wait: forebay wait 000000000001" in done.err
    assert forebay("result", "@last", "--timeout", "100ms").code == 124


def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """`--timeout` of any command; exit code 124."""
    path = tmp_path / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen()
        for words in (["ps"], ["show", "0a3"], ["cron"], ["status"], ["logs", "0a3"]):
            assert main([*words, "--url", f"unix://{path}", "--timeout", "50ms"]) == 124, words


def test_results_and_logs_are_asked_for_later(forebay: Forebay) -> None:
    """By the beginning of the id, or the newest one."""
    forebay("submit", "echo", "--first", "3")
    assert forebay("result", "@last") == (0, '{"first": 3}\n', "")
    assert forebay("logs", "@last") == (0, "grün\nand blue\n", "")
    assert forebay("logs", "-f", "0000") == (0, "grün\nand blue\n", "")
    assert told_lines(forebay("logs", "--json", "@last"))[0] == {
        "schema": 1,
        "id": "000000000001",
        "text": "gr",
    }
    forebay("submit", "die")
    assert forebay("logs", "-f", "@last").code == 7
    done = forebay("result", "zz")
    assert (done.code, done.out) == (4, "")


def told_lines(done: Done) -> list[Any]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_wait_says_how_each_ended(forebay: Forebay) -> None:
    """Its exit code is that of the first that did not succeed."""
    for name in ("echo", "die", "raise"):
        forebay("submit", name)
    done = forebay("wait", *(f"00000000000{at}" for at in (1, 2, 3)))
    assert done.code == 7
    assert done.out.splitlines() == [
        "000000000001 succeeded",
        "000000000002 failed",
        "000000000003 failed",
    ]


def test_ps_lists_the_newest_first(forebay: Forebay) -> None:
    """With the reason for what failed."""
    assert forebay("ps") == (0, "", "no requests\n")
    for name in ("echo", "hold", "raise"):
        forebay("submit", name)
    rows = forebay("ps").out.splitlines()
    assert rows[0].split() == ["id", "name", "status", "age", "ran", "peak", "why"]
    assert [row.split()[1] for row in rows[1:]] == ["raise", "hold", "echo"]
    assert [one["name"] for one in told_lines(forebay("ps", "--failed", "--json"))] == ["raise"]
    done = forebay("ps", "-n", "1")
    assert "older ones: forebay ps --before 000000000003" in done.err


def test_show_tells_everything(forebay: Forebay) -> None:
    """Units for people, and the runs that did not end it."""
    forebay("submit", "raise")
    shown = forebay("show", "@last").out
    assert re.search(r"run_s +250 ms", shown)
    assert re.search(r"peak_bytes +12 MB", shown)
    assert re.search(r"failure +raised OddError: odd", shown)
    assert re.search(r"run 1 .*was ended for its memory", shown)
    assert "\nline 1\n" in shown
    assert told(forebay("show", "@last", "--json"))["run_s"] == 0.25


def test_why_prints_the_numbers_and_the_next_step(forebay: Forebay) -> None:
    """The first thing to type when something waits."""
    forebay("submit", "hold")
    lines = forebay("why", "@last").out.splitlines()
    assert lines[0] == "000000000001 queued"
    assert lines[1] == "  waiting: needs 210 MB, 95 MB free of 750 MB"
    assert re.fullmatch(r"  \d\d:\d\d:00\.000  210 MB learnt", lines[3])
    assert lines[4] == "next: wait, or raise the limit"
    assert told(forebay("why", "--json", "@last"))["next"] == "wait, or raise the limit"


def test_cancel_and_retry_say_what_came_of_it(forebay: Forebay) -> None:
    """For each request."""
    forebay("submit", "hold")
    refused = forebay("retry", "@last")
    assert refused.code == 1
    assert refused.out.startswith("000000000001 not queued: request 000000000001 has not ended")
    assert forebay("cancel", "@last") == (0, "000000000001 is being interrupted\n", "")
    assert forebay("cancel", "@last").out == "000000000001 has ended already\n"
    assert forebay("retry", "@last") == (0, "000000000001 queued\n", "")
    assert forebay("retry").code == 2
    assert forebay("retry", "--dead") == (0, "", "")


def test_retry_goes_on_behind_the_first_page(
    forebay: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that are failed are all, however many one question may name."""
    monkeypatch.setattr("forebay.cli.commands.retry.AT_ONCE", 2)
    for _ in range(5):
        forebay("run", "raise")
    ids = [f"{number:012}" for number in range(5, 0, -1)]
    assert forebay("retry", "--failed").out.splitlines() == [f"{id} queued" for id in ids]
    assert forebay("retry", *ids[:3]).out.splitlines() == [f"{id} queued" for id in ids[:3]]


def test_prune_wants_to_be_told_what(forebay: Forebay, client: Client) -> None:
    """Nothing goes by mistake."""
    forebay("submit", "echo")
    assert forebay("prune").code == 2
    assert forebay("prune", "--all", "--dry-run").out == "1 requests, 2.5 MB would go\n"
    assert len(client.list()) == 1
    assert forebay("prune", "--older-than", "0s").out == "1 requests, 2.5 MB removed\n"
    assert client.list() == []


def test_status_and_top_are_one_picture_where_nobody_watches(forebay: Forebay) -> None:
    """Counts, memory against its limit, who runs what."""
    status = forebay("status").out
    assert "small (small.py), code 0000000000000000" in status
    assert "1 running, 2 waiting, 7 succeeded" in status
    assert "210 MB of 750 MB" in status
    assert forebay("status", "--quiet") == (0, "", "")
    forebay("submit", "hold")
    top = forebay("top").out
    assert re.search(r"1 +long +busy, burst +5\.5 MB +1\.5 s +2 +000000000001", top)
    assert re.search(r"000000000001 +hold +running", top)
    assert told(forebay("top", "--json"))["figures"]["unfinished"] == 3


def test_colors_come_only_where_they_are_wanted(
    forebay: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has none, unless asked for; NO_COLOR is obeyed where nothing is asked for."""
    forebay("submit", "raise")
    assert "\x1b" not in forebay("ps").out
    assert "\x1b[31mfailed\x1b[0m" in forebay("ps", "--color", "always").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b" in forebay("ps").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in forebay("ps").out


def test_schedules_are_listed_and_rest(forebay: Forebay) -> None:
    """With the time of the last submission, and of the next."""
    row = ["report", "*/5 * * * *", "never"]
    assert re.split("  +", forebay("cron").out.splitlines()[1]) == [*row, "-"]
    paused = forebay("cron", "pause", "report").out.splitlines()[1]
    assert re.split("  +", paused) == [*row, "paused"]
    assert forebay("cron", "resume", "other").code == 4
    assert forebay("cron", "pause").code == 2


def test_stop_waits_until_the_server_is_gone(forebay: Forebay, server: SmallServer) -> None:
    """A script may start another one at once."""
    assert forebay("stop").code == 0
    server.wait_gone()
    assert forebay("status").code == 3
    server.start()


def test_replay_runs_the_request_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], server: SmallServer
) -> None:
    """With its arguments; and says that the code has changed."""
    application = tmp_path / "replayed_small.py"
    application.write_text(
        "import forebay\n"
        "app = forebay.App('small')\n"
        "@app.request()\n"
        "def echo(first: int) -> int:\n"
        "    print('here')\n"
        "    return first + 1\n"
    )
    server.kill()
    server.start(SMALL_FILE=str(application))
    main(["submit", "--url", server.url, "echo", "--first", "4"])
    capsys.readouterr()
    assert main(["replay", "--url", server.url, "@last"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "5\n"
    assert "here\n" in shown.err
    assert "the code has changed since" in shown.err
