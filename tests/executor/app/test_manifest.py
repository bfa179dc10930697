"""The description of an application that servers check arguments against."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.executor.app.docs import docs_of
from forebay.executor.app.manifest import manifest_of, to_json
from forebay.executor.app.sources import code_of, sources_of

app = forebay.App("digits", submitter="tests")


@dataclasses.dataclass
class Box:
    width: int
    label: bytes = b""


BOXES = [Box(1)]


@app.request(lane="short", memory="100MB", concurrency=2, concurrency_key="index")
def classify(
    ctx: forebay.Context,
    index: int,
    image: np.ndarray | None = None,
    boxes: list[Box] = BOXES,
    raw: bytes = b"x",
) -> dict[str, float]:
    """Tell which digit an image shows.

    The model is warm.

    Args:
        ctx: its context.
        index: which image,
            counted from 0.
        image (np.ndarray): the image itself.
        boxes: where to look.
        raw: more.

    Returns:
        How likely each digit is.
    """
    return {}


def described() -> dict[str, Any]:
    """The manifest, as a server reads it."""
    made: dict[str, Any] = json.loads(to_json(manifest_of(app, __file__, target="tune.py:app")))
    return made


def test_manifest_says_what_a_server_needs():
    """Names, options and defaults, in the words of the command line."""
    made = described()
    assert (made["schema"], made["app"], made["target"]) == (1, "digits", "tune.py:app")
    (request,) = made["requests"]
    assert request["lane"] == "short"
    assert request["memory_bytes"] == 100_000_000
    assert (request["concurrency"], request["concurrency_key"]) == (2, "index")
    names = [parameter["name"] for parameter in request["parameters"]]
    assert names == ["index", "image", "boxes", "raw"]
    assert [parameter["required"] for parameter in request["parameters"]] == [True] + [False] * 3


def test_schemas_mark_what_json_has_no_form_for():
    """A server that checks MessagePack expects bytes there, not text."""
    made = described()
    by_name = {one["name"]: one for one in made["requests"][0]["parameters"]}
    assert by_name["index"]["schema"] == {"type": "integer"}
    assert by_name["image"]["schema"]["anyOf"][0] == {"x-forebay": "array"}
    assert by_name["raw"]["schema"]["x-forebay"] == "bytes"
    assert by_name["boxes"]["schema"]["items"] == {"$ref": "#/definitions/Box"}
    assert made["definitions"]["Box"]["properties"]["label"]["x-forebay"] == "bytes"


def test_defaults_are_told_where_json_has_a_form_for_them():
    """`--help` shows them without importing the application."""
    by_name = {one["name"]: one for one in described()["requests"][0]["parameters"]}
    assert by_name["image"]["default"] is None
    assert "default" not in by_name["raw"]
    assert "default" not in by_name["index"]


def test_docs_come_from_the_docstring():
    """Help of a request and of each of its options."""
    (request,) = described()["requests"]
    assert request["doc"] == "Tell which digit an image shows.\n\nThe model is warm."
    by_name = {one["name"]: one["doc"] for one in request["parameters"]}
    assert by_name["index"] == "which image, counted from 0."
    assert by_name["image"] == "the image itself."
    assert by_name["raw"] == "more."


def test_function_without_docstring_has_no_docs():
    """Nothing is made up."""

    def work(value: int) -> None: ...

    assert docs_of(work) == ("", {})


def test_code_changes_with_the_contents_of_own_files(tmp_path: Path):
    """Every request keeps the hash of the code that ran it."""
    main, other = tmp_path / "tune.py", tmp_path / "helpers.py"
    main.write_text("import helpers\n")
    other.write_text("A = 1\n")
    sources = [str(other), str(main)]
    before = code_of(sources)
    assert before == code_of(sources)
    other.write_text("A = 2\n")
    assert code_of(sources) != before
    other.unlink()
    assert len(code_of(sources)) == 16


def test_sources_are_the_application_s_own_files(tmp_path: Path):
    """A change of an installed package is no edit of the application."""
    package = tmp_path / "project" / "deep"
    package.mkdir(parents=True)
    installed = tmp_path / "project" / ".venv" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "tune.py").write_text("import json, deep.part, foreign\n")
    (package / "part.py").write_text("")
    (installed / "foreign.py").write_text("")
    source = (
        "import sys\n"
        f"sys.path[:0] = [{str(tmp_path / 'project')!r}, {str(installed)!r}]\n"
        "import deep.tune\n"
        "from forebay.executor.app.sources import sources_of\n"
        "print(*sources_of(deep.tune.__file__), sep='\\n')\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    found = [Path(line).name for line in done.stdout.split()]
    assert found == ["__init__.py", "part.py", "tune.py"], done.stderr


def test_main_file_is_a_source_even_where_no_module_has_it():
    """A file that is run as a script is in no module under its own name."""
    assert "/nowhere/tune.py" in sources_of("/nowhere/tune.py")


def test_a_generator_is_described_by_its_items_and_its_result() -> None:
    """A caller of another language knows what comes, and a server what it passes on."""
    streams = forebay.App("streams")

    @streams.request()
    def boxes(count: int) -> Iterator[Box]:
        yield Box(count)

    @streams.request()
    def counted() -> Generator[int, None, str]:
        yield 1
        return "one"

    @streams.request()
    async def arrays() -> AsyncIterator[np.ndarray]:
        yield np.zeros(1)

    @streams.request()
    def anything():  # type: ignore[no-untyped-def]
        yield 1

    @streams.request()
    def plain() -> int:
        return 1

    made = manifest_of(streams, None, target="streams")
    found = {it["name"]: (it["items"], it["result"], it["lane"]) for it in made["requests"]}
    assert found == {
        "boxes": ({"$ref": "#/definitions/Box"}, None, "long"),
        "counted": ({"type": "integer"}, {"type": "string"}, "long"),
        "arrays": ({"x-forebay": "array"}, {"type": "null"}, "async"),
        "anything": ({}, None, "long"),
        "plain": (None, {"type": "integer"}, "long"),
    }


def test_a_generator_can_be_called_here() -> None:
    """It is still the function: nothing is submitted."""
    streams = forebay.App("streams")

    @streams.request()
    def count(ctx: forebay.Context, until: int) -> Iterator[int]:
        yield from range(until)

    @streams.request()
    async def later(ctx: forebay.Context, until: int) -> AsyncIterator[int]:
        for number in range(until):
            yield number

    async def read() -> list[int]:
        return [number async for number in later(until=2)]

    assert list(count(until=2)) == [0, 1]
    assert asyncio.run(read()) == [0, 1]


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        (int, r"'wrong' is a generator and annotated with int; annotate it with Iterator\[T\]"),
        (list[int], r"annotated with list\[int\]"),
        (Iterator[object], r"an item of request 'wrong' is annotated with object"),
        (Generator[int, None, object], r"the result of request 'wrong' is annotated with object"),
    ],
)
def test_a_generator_with_another_annotation_is_refused(annotation: Any, told: str) -> None:
    """At its definition, and not when its first item cannot be read."""

    def wrong():  # type: ignore[no-untyped-def]
        yield 1

    wrong.__annotations__["return"] = annotation
    with pytest.raises(forebay.ConfigError, match=told):
        forebay.App("streams").request(wrong)
