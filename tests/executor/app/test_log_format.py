"""Log lines as JSON: one object a line, whatever is logged."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from forebay._log_format import JsonFormatter, formatter
from forebay.configuration import find_configuration
from forebay.errors import ConfigError
from tests.executor.serving import Serving

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def logged(log: Any, form: logging.Formatter) -> list[dict[str, Any]]:
    """The objects that were logged by a function that gets a logger."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form)
    logger = logging.Logger("forebay.test")
    logger.addHandler(handler)
    log(logger)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_time_level_logger_and_message() -> None:
    """A collector of logs has to guess at the parts of a line."""
    (line,) = logged(lambda logger: logger.warning("a %s", "thing"), JsonFormatter())
    assert RFC_3339.fullmatch(line.pop("time"))
    assert line == {"level": "WARNING", "logger": "forebay.test", "message": "a thing"}


def test_a_message_of_several_lines_is_one_line() -> None:
    """A traceback becomes thirty entries."""

    def fail(logger: logging.Logger) -> None:
        try:
            raise ValueError('two\nlines "quoted" \u00e9')
        except ValueError:
            logger.exception("it\nfailed")

    (line,) = logged(fail, JsonFormatter())
    assert line["message"] == "it\nfailed"
    assert line["exception"].endswith('ValueError: two\nlines "quoted" \u00e9')


def test_the_request_is_named_where_there_is_one() -> None:
    """Nobody can say which of a thousand requests wrote a line."""

    def log(logger: logging.Logger) -> None:
        logger.info("from elsewhere")
        logger.info("its own", extra={"request": "000000000002"})

    running = JsonFormatter(lambda: "000000000001")
    assert [line["request"] for line in logged(log, running)] == ["000000000001", "000000000002"]
    idle = JsonFormatter(lambda: None)
    assert "request" not in logged(log, idle)[0]


def test_text_is_the_default() -> None:
    """A terminal is filled with braces."""
    assert formatter(None, "%(message)s")._fmt == "%(message)s"
    assert formatter("text", "%(message)s")._fmt == "%(message)s"


def test_a_wrong_format_is_refused_with_its_origin() -> None:
    """A typo is found when the logs are needed."""
    with pytest.raises(
        ConfigError, match="'yaml', from FOREBAY_LOG_FORMAT; give one of text, json"
    ):
        find_configuration(environment={"FOREBAY_LOG_FORMAT": "yaml"})


SOURCE = """
import logging

import forebay

app = forebay.App("logs")


@app.request(lane="short")
def talk(ctx: forebay.Context) -> None:
    ctx.log.info("from the request")
    logging.getLogger("library").warning("from a library")


@app.request()
async def talk_async(ctx: forebay.Context) -> None:
    ctx.log.info("from the request")
"""


@pytest.mark.parametrize("name", ["talk", "talk_async"])
def test_log_lines_of_workers_name_their_request(tmp_path: Path, name: str) -> None:
    """The lines of a request are text, while all others are JSON."""
    serving = Serving(tmp_path, SOURCE, log_format="json")
    with serving, serving.caller() as caller:
        id_ = caller.submit(name)
        caller.wait(id_)
        text = (tmp_path / "state").rglob(f"{id_}*")
        lines = [json.loads(line) for path in text for line in path.read_text().splitlines()]
    assert lines[0]["message"] == "from the request"
    assert lines[0]["logger"] == f"forebay.request.{name}"
    assert {line["request"] for line in lines} == {id_}
    if name == "talk":
        assert lines[1]["message"] == "from a library"
