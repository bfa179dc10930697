"""Record files: what is appended is what is read, and what is wrong is refused by name."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.blockio.records.file import RecordFile
from forebay.blockio.records.layout import DATA_OFFSET
from forebay.errors import BusyError, ClosedError, ConfigError, LimitError, StaleError
from forebay.memory import Arena
from tests.blockio.record_files import PADDED, PLAIN, everything, numbered, whole

pytestmark = pytest.mark.usefixtures("default_on_each_engine")

DTYPES = [
    np.dtype("<f4"),
    np.dtype(("<f4", (768,))),
    np.dtype("<M8[us]"),
    np.dtype("S5"),
    PLAIN,
    PADDED,
    np.dtype([("a", "<i2"), ("b", [("c", ">f8"), ("d", "U3", (2, 2))])]),
    np.dtype([("a", "u1"), ("b", "<f8")], align=True),
    np.dtype({"names": ["a", "b"], "formats": ["u1", "<u4"], "offsets": [0, 8], "itemsize": 16}),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "test.fbr")


def made(dtype: np.dtype[Any], n: int) -> Any:
    """Records of any dtype."""
    bytes_ = np.random.default_rng(n).integers(1, 100, n * dtype.itemsize, np.uint8)
    return bytes_.view(dtype.base).reshape(n, *dtype.shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("checksums", [False, True])
def test_records_come_back_as_they_were(path: str, dtype: np.dtype[Any], checksums: bool) -> None:
    """Whatever the dtype: fields within fields, padding, a shape, dates, text."""
    records = made(dtype, 50)
    with RecordFile(path, dtype, mode="a", checksums=checksums) as file:
        assert file.append(records[:20]) == 0
        assert file.append(records[20:]) == 20
        found = file.gather(np.arange(50))
        assert found.dtype == dtype.base
        assert found.shape == records.shape
        assert np.array_equal(found, records)
    with RecordFile(path) as file:
        assert file.dtype == dtype
        assert np.array_equal(file.gather([49, 0, -1]), records[[49, 0, -1]])


def test_one_record_may_be_given_in_many_forms(path: str) -> None:
    """A transition is a tuple in most programs, and a scalar of an array in others."""
    dtype = np.dtype([("a", "<i4"), ("b", "<f8")])
    with RecordFile(path, dtype, mode="a") as file:
        file.append((1, 2.0))
        file.append([(3, 4.0), (5, 6.0)])
        file.append(np.array([(7, 8.0)], dtype)[0])
        file.append(np.array((9, 10.0), dtype))
        assert file.append(np.zeros(0, dtype)) == 5
        assert everything(file).tolist() == [(1, 2.0), (3, 4.0), (5, 6.0), (7, 8.0), (9, 10.0)]


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (np.zeros(3, "f8"), "not float64"),
        (np.zeros((2, 2), "f4"), r"shape \(2, 2\)"),
        ("seven", "no record of dtype"),
    ],
)
def test_records_of_another_kind_are_refused(path: str, records: Any, told: str) -> None:
    """A cast that nobody asked for would lose digits without a word."""
    with RecordFile(path, "f4", mode="a") as file:
        with pytest.raises(ConfigError, match=told):
            file.append(records)
        assert len(file) == 0


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        ("O", "Python objects"),
        ([("a", "i4"), ("b", "O")], "Python objects"),
        ("S0", "0 bytes"),
        ("nonsense", "no dtype"),
        ({"names": ["a", "b"], "formats": ["u4", "u4"], "offsets": [0, 2]}, "written down"),
        ([(f"field_of_a_long_name_{i}", "u1") for i in range(200)], "the header has room for"),
    ],
)
def test_what_no_file_can_hold_is_refused(path: str, dtype: Any, told: str) -> None:
    """And leaves no file behind."""
    with pytest.raises(ConfigError, match=told):
        RecordFile(path, dtype, mode="a")
    assert list(Path(path).parent.iterdir()) == []


def test_a_file_is_opened_as_what_it_is(path: str) -> None:
    """Floats that are read as integers look like data."""
    RecordFile(path, "f4", mode="a", capacity=7).close()
    for wrong, told in (
        ({"dtype": "i4"}, "dtype float32, not int32"),
        ({"capacity": 8}, "a capacity of 7, not 8"),
        ({"checksums": True}, "made without checksums"),
        ({"capacity": 0}, "a capacity of 0"),
        ({"mode": "w"}, "mode is 'w'"),
    ):
        for mode in ("r", "a"):
            with pytest.raises(ConfigError, match=told):
                RecordFile(path, **{"mode": mode, **wrong})  # type: ignore[arg-type]
    with RecordFile(path, "<f4", mode="a", capacity=7) as file:
        assert file.capacity == 7


def test_a_file_that_is_not_there_is_made_only_to_append(path: str) -> None:
    """A mistyped path would look like an empty buffer."""
    with pytest.raises(FileNotFoundError):
        RecordFile(path, "f4")
    with pytest.raises(ConfigError, match="does not exist yet; give the dtype"):
        RecordFile(path, mode="a")
    with RecordFile(path, "f4", mode="a"):
        assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]


def test_only_one_appends(path: str) -> None:
    """Two would write over each other's records."""
    with RecordFile(path, "f4", mode="a") as file, RecordFile(path, "f4") as reader:
        file.append(1.0)
        assert reader.refresh() == 1
        with pytest.raises(ConfigError, match="open it with mode='a'"):
            reader.append(2.0)
        with pytest.raises(BusyError, match=f"process {os.getpid()}; close that one"):
            RecordFile(path, "f4", mode="a")
    RecordFile(path, "f4", mode="a").close()


def test_strides_are_padded_where_that_is_cheap(path: str) -> None:
    """A record of 4 KiB with a checksum is read by O_DIRECT; one of 100 bytes takes 100 bytes."""
    strides = {}
    for record, checksums in ((4096, False), (4096, True), (100, False), (100, True), (1008, True)):
        name = f"{path}.{record}.{checksums}"
        with RecordFile(name, f"S{record}", mode="a", checksums=checksums) as file:
            strides[record, checksums] = file.layout.stride_bytes
            file.append(np.zeros(3, f"S{record}"))
            assert os.path.getsize(name) == DATA_OFFSET + 3 * file.layout.stride_bytes
    assert strides == {
        (4096, False): 4096,
        (4096, True): 4608,
        (100, False): 100,
        (100, True): 104,
        (1008, True): 1024,
    }


def test_direct_is_refused_where_it_cannot_be(path: str) -> None:
    """Whoever asks for it would believe that the page cache is not used."""
    with RecordFile(path, "S100", mode="a") as file:
        assert not file.direct
    with pytest.raises(ConfigError, match="a stride of 100 bytes is no multiple of"):
        RecordFile(path, direct=True)
    with RecordFile(f"{path}.2", "S1024", mode="a") as file:
        file.append(np.zeros(3, "S1024"))
        if not file.direct:
            pytest.skip("the file system has no O_DIRECT")
    for direct in (True, False, None):
        with RecordFile(f"{path}.2", direct=direct) as file:
            assert file.direct is (direct is not False)
            assert file.gather([2, 0]).tolist() == [b"", b""]


def test_appends_without_syncs_are_read_from_the_page_cache(path: str) -> None:
    """A direct read would have to write the pages out first."""
    with RecordFile(path, PADDED, mode="a", sync=False) as file:
        file.append(numbered(0, 10, PADDED))
        assert not file.direct
        assert whole(everything(file))


@pytest.mark.parametrize("dtype", [PLAIN, PADDED, np.dtype("<f4")], ids=["packed", "padded", "f4"])
@pytest.mark.parametrize("direct", [None, False])
def test_a_batch_may_be_read_into_memory_of_ones_own(
    path: str, dtype: np.dtype[Any], direct: bool | None
) -> None:
    """A training loop that reads into the same array needs no arena."""
    with RecordFile(path, dtype, mode="a", direct=direct) as file:
        records = made(dtype, 100)
        file.append(records)
        indices = np.random.default_rng(1).integers(-100, 100, 64)
        out = np.zeros(64, dtype)
        assert file.gather(indices, out) is out
        assert np.array_equal(out, records[indices])
        backwards = np.zeros(64, dtype)[::-1]
        assert np.array_equal(file.gather(indices, backwards), records[indices])
        for wrong in (np.zeros(63, dtype), np.zeros(64, "S3"), np.zeros((64, 1), dtype)):
            with pytest.raises(ConfigError, match="give a writable array of"):
                file.gather(indices, wrong)


def test_a_batch_holds_its_memory_and_gives_it_back(path: str) -> None:
    """A batch in a queue must stay what it was; one that is dropped must not fill the arena."""
    with Arena("64MiB") as arena, RecordFile(path, PADDED, mode="a", arena=arena) as file:
        file.append(numbered(0, 2000, PADDED))
        kept = file.gather(np.arange(1000))
        view = kept["body"][3:5]
        for _ in range(100):  # far more than the arena holds
            assert whole(file.gather(np.arange(1000, 2000)))
        assert whole(kept)
        assert kept["number"].tolist() == list(range(1000))
        assert kept.flags.writeable
        assert arena.stats()["blocks"] == 1
        del kept
        gc.collect()
        assert arena.stats()["blocks"] == 1
        assert (view == [[3.0] * 250, [4.0] * 250]).all()
        del view
        gc.collect()
        assert arena.stats()["blocks"] == 0


def test_a_full_arena_says_so(path: str) -> None:
    """Who holds every batch reads which memory is full, of how much, and what to do."""
    with Arena("2MiB", name="tiny") as arena, RecordFile(path, "S1024", mode="a", arena=arena) as f:
        f.append(np.zeros(4000, "S1024"))
        held = [f.gather(np.arange(1000))]
        with pytest.raises(
            LimitError, match=r"1024000 bytes of arena 'tiny'.*drop batches"
        ) as told:
            held += [f.gather(np.arange(1000)) for _ in range(4)]
        assert told.value.limit == 2 << 20
        held.clear()
        assert f.gather(np.arange(1000)).shape == (1000,)


@pytest.mark.parametrize("indices", [[3], [-4], [0, 5], np.array([2**64 - 1], np.uint64)])
def test_an_index_outside_of_the_window_is_an_index_error(path: str, indices: Any) -> None:
    """As of any sequence; the message names it."""
    with RecordFile(path, "f4", mode="a") as file:
        file.append([1.0, 2.0, 3.0])
        with pytest.raises(IndexError, match="give -3 to 2, or refresh") as told:
            file.gather(indices)
        assert isinstance(told.value, ConfigError)
        with pytest.raises(ConfigError, match="give integers in one dimension"):
            file.gather(np.zeros((2, 2), int))
        with pytest.raises(ConfigError, match="give integers in one dimension"):
            file.gather([0.5])
        assert file.gather([]).shape == (0,)


def test_a_closed_file_is_refused_and_its_batches_are_not(path: str) -> None:
    """A batch may outlive the file that it came from."""
    file = RecordFile(path, PLAIN, mode="a")
    file.append(numbered(0, 10))
    batch = everything(file)
    file.close()
    file.close()
    assert whole(batch)
    for call in (lambda: file.append(batch), lambda: file.gather([0]), lambda: file.sample(1)):
        with pytest.raises(ClosedError, match="is closed; open it again"):
            call()
    assert "closed" in repr(file)


def test_a_forked_child_opens_its_own(path: str) -> None:
    """A child that appends through its parent's file would break it; one that closes, unlock it."""
    with RecordFile(path, "f4", mode="a") as file:
        file.append([1.0])
        child = os.fork()
        if not child:
            code = 1
            try:
                with pytest.raises(StaleError, match="open it in the child"):
                    file.append(2.0)
                file.close()
                with RecordFile(path) as own:
                    assert own.gather([0]).tolist() == [1.0]
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(BusyError):
            RecordFile(path, mode="a")
        file.append([3.0])
        assert everything(file).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("module", ["blockio.records.file", "tensor.client.client"])
def test_without_numpy_the_error_says_what_to_install(module: str) -> None:
    """The package works without numpy, and so a ModuleNotFoundError would look like a bug."""
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from forebay.errors import ConfigError\n"
        f"try: import forebay.{module}\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert "need numpy, which is not installed; pip install numpy" in done.stdout, done.stderr
