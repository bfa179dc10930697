"""What a template does about threads that an import starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from forebay.pool.service.threads import template_variables
from tests.pool.scripts import write
from tests.pool.service.test_main import imported
from tests.pool.services import Environment

NATIVE = r"""
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <sys/prctl.h>
    #include <unistd.h>

    static void *run(void *unused) {
        prctl(PR_SET_NAME, NAME);
        for (;;)
            if (SLEEPS) pause();
        return unused;
    }

    __attribute__((constructor)) static void start(void) {
        pthread_t thread;
        pthread_create(&thread, NULL, run, NULL);
    }
"""
"""A library as others are: loading it starts a thread that Python does not know."""

WRAPPER = """
    import ctypes, pathlib
    ctypes.CDLL(str(pathlib.Path(__file__).with_name("native.so")))
"""

APPLICATION = """
    import forebay, {imported}

    class Hidden(forebay.Service):
        def ping(self):
            return "pong"
"""


Native = Callable[..., type[forebay.Service]]


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    """Makes a service class whose module imports a library that starts a thread of a name."""

    def make(name: str, *, sleeps: bool) -> type[forebay.Service]:
        source = write(tmp_path / "native.c", NATIVE)
        options = [f'-DNAME="{name}"', f"-DSLEEPS={int(sleeps)}", "-shared", "-fPIC", "-pthread"]
        library = tmp_path / "fast_columns" / "native.so"
        write(library.with_name("__init__.py"), "from fast_columns import kernel")
        write(library.with_name("kernel.py"), WRAPPER)
        subprocess.run(["gcc", *options, "-o", library, source], check=True, timeout=50)
        write(tmp_path / "frames_of_data.py", "import json, fast_columns, fractions")
        return imported(tmp_path, APPLICATION.format(imported="frames_of_data"), monkeypatch)

    return make


@pytest.mark.needs("gcc")
def test_the_import_that_started_a_thread_is_named(
    pool: forebay.ServicePool, native: Native
) -> None:
    """A user whose pandas is refused must learn which of forty imports started the thread."""
    with (
        pytest.raises(forebay.ConfigError) as caught,
        pool.acquire(native("arrow-io", sleeps=True), timeout=20),
    ):
        pass
    message = str(caught.value)
    assert "arrow-io" in message
    assert "import fast_columns.kernel" in message
    assert "import frames_of_data" in message
    assert "fractions" not in message


@pytest.mark.needs("gcc")
def test_a_thread_that_is_known_to_sleep_is_no_reason_to_refuse(
    pool: forebay.ServicePool, native: Native
) -> None:
    """Polars and what imports it (statsmodels) start one thread that only waits for orders."""
    with pool.acquire(native("polars-ooc-clea", sleeps=True), timeout=20) as quiet:
        assert quiet.ping() == "pong"


@pytest.mark.needs("gcc")
def test_a_known_thread_that_does_not_sleep_is_refused(
    pool: forebay.ServicePool, native: Native
) -> None:
    """One that runs may hold a lock at the moment of a fork, whatever its name."""
    with (
        pytest.raises(forebay.ConfigError, match="polars-ooc-clea"),
        pool.acquire(native("polars-ooc-clea", sleeps=False), timeout=20),
    ):
        pass


def test_a_template_tells_libraries_to_start_no_threads(
    pool: forebay.ServicePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pandas and scikit-learn beside pyarrow: only this setting makes them fit a template."""
    for name in template_variables({}):
        monkeypatch.delenv(name, raising=False)
    with pool.acquire(Environment) as environment:
        assert environment.of("JE_ARROW_MALLOC_CONF") == "background_thread:false"
        assert environment.of("_RJEM_MALLOC_CONF") == "background_thread:false"
        assert environment.of("ORT_DISABLE_TELEMETRY") == "1"
        assert environment.of("OPENBLAS_NUM_THREADS") == "1"
    for name in template_variables({}):
        assert name not in os.environ, "only the template's are set"


@pytest.mark.parametrize(
    ("theirs", "becomes"),
    [
        ("dirty_decay_ms:0", "dirty_decay_ms:0,background_thread:false"),
        ("background_thread:true,narenas:1", "background_thread:true,narenas:1"),
        ("", "background_thread:false"),
    ],
)
def test_a_users_settings_of_an_allocator_stay(theirs: str, becomes: str) -> None:
    """Who has set the decay of Arrow's memory must not find it undone in services."""
    variables = template_variables({"JE_ARROW_MALLOC_CONF": theirs})
    assert variables["JE_ARROW_MALLOC_CONF"] == becomes


def test_a_user_who_wants_telemetry_keeps_it() -> None:
    """A value that is set is the user's word."""
    assert template_variables({"ORT_DISABLE_TELEMETRY": "0"})["ORT_DISABLE_TELEMETRY"] == "0"


def test_an_error_in_an_import_shows_no_frames_of_ours(
    pool: forebay.ServicePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watching imports must not push our frames into the traceback that a user reads."""
    write(tmp_path / "broken_leaf.py", "raise LookupError('no licence found')")
    broken = imported(tmp_path, APPLICATION.format(imported="broken_leaf"), monkeypatch)
    with pytest.raises(forebay.ConfigError) as caught, pool.acquire(broken, timeout=20):
        pass
    message = str(caught.value)
    assert "no licence found" in message
    assert "importlib" not in message
    assert "pool/service/imports" not in message
