"""Popular libraries in templates: each is imported once, and fifty forks of that import use it.

`make test` runs this for those that its environment has; `make test-libraries` installs the others
into one of its own, and fails where one is missing.
"""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import forebay
from tests.pool.scripts import ROOT
from tests.pool.service.test_main import imported

FORKS = 50


class Library(NamedTuple):
    """How a library is imported by an application, and used by a service of it."""

    imports: str
    use: str


TABLE = "pandas.DataFrame({'key': ['a', 'b', 'a'], 'value': [1, 2, 3]})"
POINTS = "numpy.arange(40.0).reshape(20, 2)"
# An ONNX model of one node, y = Identity(x), as onnx.helper writes it.
IDENTITY = (
    "08083a3a0a100a017812017922084964656e7469747912046e6f6e655a0f0a0178120a0a08080112040a020802"
    "620f0a0179120a0a08080112040a02080242040a00100d"
)

LIBRARIES = {
    "numpy": Library("import numpy", "int(numpy.linalg.inv(numpy.eye(200)).sum())"),
    "scipy": Library(
        "import numpy, scipy.linalg, scipy.optimize, scipy.sparse",
        "round(scipy.optimize.brentq(lambda x: x * x - 4, 0, 9))"
        " + int(scipy.linalg.det(numpy.eye(90)))",
    ),
    "pandas": Library("import pandas", f"int({TABLE}.groupby('key').sum().loc['a', 'value'])"),
    "pyarrow": Library(
        "import pyarrow, pyarrow.compute, pyarrow.parquet, pyarrow.dataset",
        "pyarrow.compute.sum(pyarrow.array(range(100_000))).as_py()",
    ),
    "scikit-learn": Library(
        "import numpy, sklearn.ensemble, sklearn.linear_model",
        f"float(sklearn.ensemble.RandomForestRegressor(8, n_jobs=2).fit({POINTS},"
        " numpy.arange(20.0)).predict([[3.0, 4.0]])[0]) < 20",
    ),
    "polars": Library(
        "import polars",
        "polars.DataFrame({'key': [1, 2] * 5000, 'value': range(10000)}).lazy().group_by('key')"
        ".agg(polars.col('value').sum()).sort('key').collect()['value'][0]",
    ),
    "matplotlib": Library(
        "import io, matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot",
        "matplotlib.pyplot.figure().savefig(io.BytesIO(), format='png')",
    ),
    "xgboost": Library(
        "import numpy, xgboost",
        f"len(xgboost.XGBRegressor(n_estimators=3).fit({POINTS}, numpy.arange(20.0))"
        ".predict(numpy.ones((4, 2))))",
    ),
    "lightgbm": Library(
        "import numpy, lightgbm",
        "len(lightgbm.LGBMRegressor(n_estimators=3, verbose=-1)"
        f".fit({POINTS}, numpy.arange(20.0)).predict(numpy.ones((4, 2))))",
    ),
    "statsmodels": Library(
        "import numpy, statsmodels.api",
        "len(statsmodels.api.OLS(numpy.arange(20.0),"
        " statsmodels.api.add_constant(numpy.arange(20.0) ** 2)).fit().params)",
    ),
    "jax": Library(
        "import jax, jax.numpy", "float(jax.jit(jax.numpy.sum)(jax.numpy.arange(10.0)))"
    ),
    "tensorflow": Library("import tensorflow", "int(tensorflow.reduce_sum([1, 2, 3]))"),
    "onnxruntime": Library(
        "import numpy, onnxruntime",
        f"float(onnxruntime.InferenceSession(bytes.fromhex('{IDENTITY}'))"
        ".run(None, {'x': numpy.ones(2, numpy.float32)})[0].sum())",
    ),
}

APPLICATION = """
import forebay
{imports}

class Hidden(forebay.Service):
    resets = forebay.Reset.NEVER

    def use(self):
        return {use}
"""


def installed() -> list[str]:
    """The libraries of this environment; all where `make test-libraries` asks for them."""
    if "FOREBAY_LIBRARIES" in os.environ:
        return list(LIBRARIES)
    package = {"scikit-learn": "sklearn"}
    return [name for name in LIBRARIES if importlib.util.find_spec(package.get(name, name))]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", installed())
def test_fifty_forks_use_a_library_that_the_template_has_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What most programs import must fit a template, or warm starts are for nobody."""
    library = LIBRARIES[name]
    hidden = imported(
        tmp_path, APPLICATION.format(imports=library.imports, use=library.use), monkeypatch
    )
    hidden.use = lambda self: None
    hidden.resets = forebay.Reset.NEVER
    answers, pids = [], set()
    with forebay.ServicePool(max_size=2, start_timeout=200, name=name) as pool:
        for _ in range(FORKS):
            with pool.acquire(hidden, timeout=200) as service:
                answers.append(service.lease.options(timeout=60).use())
                pids.add(service.lease.pid)
    assert len(pids) == FORKS
    assert answers == [answers[0]] * FORKS


def test_the_table_of_libraries_is_the_one_that_is_tested() -> None:
    """A library that a page promises and no test imports is a promise that nobody keeps."""
    page = (ROOT / "docs" / "guides" / "libraries.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == list(LIBRARIES)
