"""Servers that lie about their tensors: refused before there is memory to receive into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forebay.errors import ProtocolError
from forebay.tensor import TensorClient, TensorServer
from tests.tensor.binding import shard_at
from tests.tensor.conftest import TABLE
from tests.tensor.contents import CONTENTS, same
from tests.tensor.faces import FACES, face_of
from tests.tensor.shards import serving, url_in

OBJECTS = {
    "objects": "'|O'",
    "objects by another word": "'object'",
    "a field of objects": "[('a', '|O')]",
    "a deep field of objects": "[('a', [('b', '|O', (1,))], (1,))]",
    "parts of an array of objects": "('|O', (1,))",
}

OTHERS = {
    "another size": "'<f4'",
    "no bytes": "'|V0'",
    "an array for an element": "('<f4', (2,))",
    "nothing": "",
    "no literal": "__import__('os')",
    "no pair": "()",
    "a nested nothing": "((), ())",
    "no fields": "[]",
    "a field without a dtype": "[('a',)]",
    "one name twice": "[('a', '<f4'), ('a', '<f4')]",
    "a field of a negative shape": "[('a', '<f4', (-2,))]",
    "a field larger than memory": "[('a', '<f4', (1 << 62,))]",
    "a number": "8",
    "deeply nested": "(" * 300 + ")" * 300,
    "a byte that no text has": "'\\x00f8'",
}


@pytest.mark.parametrize("face_name", FACES)
@pytest.mark.parametrize("kind", [*OBJECTS, *OTHERS])
def test_a_dtype_that_is_made_up_is_refused(tmp_path: Path, kind: str, face_name: str) -> None:
    """Bytes of a server are never received over pointers; the message says whose they would be."""
    text = {**OBJECTS, **OTHERS}[kind]
    url = f"unix://{tmp_path}/lying.sock"
    content = np.full((4, 1), 0x41414141, "u8")
    with shard_at(url) as (shard, _), face_of(face_name, url) as face:
        shard.publish("honest", "'<u8'", "u", 8, content.shape, content.copy())
        shard.publish("forged", text, "V", 8, content.shape, content.copy())
        for method, arguments in (
            ("pull", ("forged",)),
            ("pull_many", (["forged"],)),
            ("push", ("forged", 0, None)),
        ):
            with pytest.raises(ProtocolError, match=r"'forged' at unix:.*lying\.sock"):
                face.call(method, *arguments)
        assert same(face.call("pull", "honest"), content)


def test_one_shard_of_several_lies(tmp_path: Path) -> None:
    """The message names the one that does."""
    urls = [f"unix://{tmp_path}/{name}.sock" for name in ("first", "second")]
    with TensorServer({"rows": TABLE}, urls[0]), shard_at(urls[1]) as (shard, _):
        shard.publish("rows", "'<f4'", "f", 8, (4, 5), np.zeros((4, 5)))
        with (
            TensorClient(urls) as client,
            pytest.raises(ProtocolError, match=r"'rows' at unix:.*second\.sock"),
        ):
            client.pull("rows")


def test_honest_dtypes_are_believed(tmp_path: Path) -> None:
    """Whatever a server of ours can publish."""
    with serving(tmp_path, CONTENTS), TensorClient(url_in(tmp_path)) as client:
        for name, content in CONTENTS.items():
            assert client.tensor(name).dtype == content.dtype
