"""What an application says, and what it is told at once where it is wrong."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.executor.app.load import find_app, load

app = forebay.App("tests")


@app.request(lane="short", memory="100MB", timeout="1.5min", retries=2)
def classify(ctx: forebay.Context, index: int = 0, *, image: np.ndarray | None = None) -> int:
    """Classify."""
    return index + ctx.attempt


@app.request()
async def nap(seconds: float) -> float:
    """Sleep."""
    return seconds


def test_decorated_function_is_called_as_it_was():
    """Code that uses the function directly goes on working, without a server."""
    assert classify(index=6) == 7
    assert classify(6) == 7
    assert classify(forebay.Context("x", 2, "classify"), 6) == 8
    assert nap.definition.function is nap


def test_decorated_function_stays_what_libraries_look_for():
    """Event loops, picklers and documentation tools see the function, not a wrapper of ours."""
    assert inspect.iscoroutinefunction(nap)
    assert pickle.loads(pickle.dumps(classify)) is classify
    assert classify.__doc__ == "Classify."


def test_definition_tells_a_client_names_in_order_without_the_context():
    """A client binds positional arguments by them."""
    assert classify.definition.parameters == ("index", "image")
    assert classify.definition.name == "classify"
    assert classify.app is app
    assert app.target == f"{__file__}:app"


def test_options_are_numbers_with_units_in_their_names():
    """Everybody behind this reads bytes and seconds."""
    options = classify.definition.options
    assert (options.lane, options.memory_bytes, options.timeout_s) == ("short", 100_000_000, 90.0)
    assert (options.retries, options.backoff_s, options.backoff_max_s) == (2, 1.0, 300.0)


def test_a_back_off_is_not_cut_by_the_default_of_its_limit():
    """The same as for a submission that asks for it."""
    own = forebay.App("patient")

    @own.request(backoff="10min")
    def work() -> None: ...

    options = work.definition.options
    assert (options.backoff_s, options.backoff_max_s) == (600.0, 600.0)


def test_lane_is_long_unless_the_function_is_async():
    """The lane that nobody chose is the one that cannot hurt others."""
    own = forebay.App("lanes")

    def work() -> None: ...

    assert own.request()(work).definition.options.lane == "long"
    assert nap.definition.options.lane == "async"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"lane": "fast"}, "lane='fast'"),
        ({"lane": "async"}, "lane='async'"),
        ({"memory": "100 potatoes"}, "memory='100 potatoes'"),
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"timeout": 0}, "timeout=0"),
        ({"retries": -1}, "retries=-1"),
        ({"retries": True}, "retries=True"),
        ({"cpu": 0}, "cpu=0"),
        ({"cpu": 1025}, "cpu=1025"),
        ({"timeout": "4000d"}, "timeout='4000d'"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"idempotent": 1}, "idempotent=1"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency_key": "value"}, "concurrency=N"),
        ({"concurrency": 1, "concurrency_key": "nothing"}, "concurrency_key='nothing'"),
        ({"cron": "often"}, "cron='often'"),
        ({"cron": "*/5 * * * * *"}, "it has 6 fields, not five"),
        ({"cron": "61 * * * *"}, 'minute "61" is not within 0 to 59'),
        ({"ahead": 65}, "ahead=65"),
        ({"retention": "soon"}, "retention='soon'"),
        ({"retention": "11000d"}, "retention='11000d'"),
        ({"cron": "* * * * *"}, "'value'"),
        ({"name": "no spaces"}, "'no spaces'"),
    ],
)
def test_wrong_option_is_refused_by_name(options: dict[str, Any], named: str):
    """The mistake is found where it was made, not by the first request."""
    own = forebay.App("wrong")

    def work(value: int) -> None: ...

    with pytest.raises(forebay.ConfigError) as caught:
        own.request(**options)(work)
    assert named in str(caught.value)
    assert "work" in str(caught.value) or "name" in options


def _complex(value: complex) -> None: ...
def _callback(on_end: Callable[[], None]) -> None: ...
def _nested(values: list[dict[str, range]]) -> None: ...
def _mixed(value: str | bytes) -> None: ...
def _result() -> range: ...
def _variadic(*values: int) -> None: ...
def _keywords(**values: int) -> None: ...
def _positional(value: int, /) -> None: ...


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (_complex, "parameter 'value'"),
        (_callback, "parameter 'on_end'"),
        (_nested, "range is no data"),
        (_mixed, "parameter 'value'"),
        (_result, "the result of request '_result'"),
        (_variadic, "parameter 'values'"),
        (_keywords, "parameter 'values'"),
        (_positional, "parameter 'value'"),
    ],
)
def test_what_cannot_travel_is_refused_at_decoration(function: Any, named: str):
    """A request that could never be submitted does not get as far as a server."""
    with pytest.raises(forebay.ConfigError) as caught:
        forebay.App("refuses").request()(function)
    assert named in str(caught.value)


def test_annotation_of_a_later_class_is_read_at_first_use():
    """Order of definition in a module is the author's own affair."""
    names: dict[str, Any] = {"forebay": forebay, "__name__": "later"}
    source = (
        "from __future__ import annotations\n"
        "from typing import NamedTuple\n"
        "app = forebay.App('later')\n"
        "@app.request()\n"
        "def work(ctx: forebay.Context, job: Job) -> int: return job.size\n"
    )
    exec(source, names)
    definition = names["work"].definition
    assert definition.parameters == ("job",)
    with pytest.raises(forebay.ConfigError, match=r"parameter 'job'.*Job"):
        _ = definition.fields
    exec("class Job(NamedTuple):\n    size: int\n", names)
    assert definition.fields[0].annotation is names["Job"]


def test_two_functions_of_one_name_are_refused():
    """The second would silently take the place of the first."""
    own = forebay.App("twice")
    own.request("work")(_complexless)
    with pytest.raises(forebay.ConfigError, match="work"):
        own.request("work")(_another)
    own.request("work")(_complexless)  # the same again, as a notebook's cell that is run again


def _complexless() -> None: ...
def _another() -> None: ...


def test_service_that_is_none_is_refused():
    """A typo in the application stops it, not its first request."""
    with pytest.raises(forebay.ConfigError, match="no service"):
        forebay.App("services").service(int)  # type: ignore[arg-type]
    with pytest.raises(forebay.ConfigError, match="min_idle=3"):
        forebay.App("services").service(_Idle, min_idle=3, max_size=2)


class _Idle(forebay.Service): ...


def test_app_is_found_by_its_name_by_its_request_or_as_the_only_one():
    """TARGET is `tune.py:app`, `tune.py:tune` or `tune.py`."""
    names = {"app": app, "classify": classify, "other": 3}
    assert find_app(names, None, "tune.py") is app
    assert find_app(names, "app", "tune.py") is app
    assert find_app(names, "classify", "tune.py") is app
    assert find_app({"classify": classify}, None, "tune.py") is app


@pytest.mark.parametrize(
    ("names", "attribute", "told"),
    [
        ({"x": 1}, None, "no forebay.App"),
        ({"one": app, "two": forebay.App("two")}, None, "2 apps (one, two)"),
        ({"app": app, "classify": classify}, "clasify", "did you mean classify?"),
        ({"app": app, "limit": 3}, "limit", "neither"),
    ],
)
def test_target_that_names_no_app_says_what_is_there(
    names: dict[str, Any], attribute: str | None, told: str
):
    """The next step is in the message."""
    with pytest.raises(forebay.ConfigError) as caught:
        find_app(names, attribute, "tune.py")
    assert told in str(caught.value)


def test_file_that_is_not_there_is_named(tmp_path: Any):
    """Not an import error of a name that nobody wrote."""
    with pytest.raises(forebay.ConfigError, match="there is no file"):
        load("path", str(tmp_path / "tune.py"), None)


def test_importing_an_application_loads_neither_msgspec_nor_asyncio():
    """A command line that imports an application for one call pays for what it uses."""
    source = (
        "import sys, forebay\n"
        "app = forebay.App('light')\n"
        "@app.request(memory='1MB')\n"
        "def work(ctx: forebay.Context, n: int, names: list[str]) -> dict[str, int]:\n"
        "    return {}\n"
        "print([name for name in ('msgspec', 'asyncio', 'numpy') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_decorator_needs_no_parentheses_where_it_has_no_options() -> None:
    """As in every framework that a newcomer knows."""
    app = forebay.App("bare")

    @app.request
    def plain(number: int) -> int:
        return number + 1

    @app.request
    async def aside(ctx: forebay.Context, number: int = 1) -> int:
        return number

    assert plain(1) == 2
    assert list(app.requests) == ["plain", "aside"]
    assert app.requests["plain"].options.lane == "long"
    assert app.requests["aside"].options.lane == "async"


@pytest.mark.parametrize("cron", ["* * * * *", "@daily", "0 9 * * mon-fri", " 5/20  * * * * "])
def test_what_the_server_takes_as_a_schedule_the_decorator_takes(cron: str) -> None:
    """One rule, the server's: what is decorated without an error is served."""
    app = forebay.App("scheduled")

    @app.request(cron=cron)
    def work() -> None:
        """Nothing."""

    assert app.requests["work"].options.cron == " ".join(cron.split())
