"""Where the settings come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.config import KINDS, ExecutorConfig
from forebay.configuration import Configuration, find_configuration
from forebay.errors import ConfigError


def configured(
    tmp_path: Path, environment: dict[str, str] | None = None, **arguments: object
) -> Configuration:
    """The configuration of an empty home, seen from `tmp_path/project/deep`."""
    deep = tmp_path / "project" / "deep"
    deep.mkdir(parents=True, exist_ok=True)
    given = {name.replace("__", "."): value for name, value in arguments.items()}
    home = {"XDG_CONFIG_HOME": str(tmp_path / "home")}
    return find_configuration(given, start=deep, environment={**home, **(environment or {})})


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def drain(configuration: Configuration) -> tuple[float, str]:
    setting = configuration.settings["executor.drain_grace"]
    assert configuration.executor.drain_grace == setting.value
    return setting.value, setting.origin


def test_each_source_gives_way_to_the_one_above_it(tmp_path: Path) -> None:
    """Argument > environment > file of the project > file of the user > default."""
    assert drain(configured(tmp_path)) == (ExecutorConfig().drain_grace, "default")
    users = write(tmp_path / "home/forebay/forebay.toml", "executor.drain_grace = '1s'")
    assert drain(configured(tmp_path)) == (1.0, str(users))
    project = write(tmp_path / "project/forebay.toml", "[executor]\ndrain_grace = '2s'")
    assert drain(configured(tmp_path)) == (2.0, str(project))
    environment = {"FOREBAY_EXECUTOR_DRAIN_GRACE": "3"}
    assert drain(configured(tmp_path, environment)) == (3.0, "FOREBAY_EXECUTOR_DRAIN_GRACE")
    given = configured(tmp_path, environment, executor__drain_grace="4s")
    assert drain(given) == (4.0, "argument")


def test_the_users_file_decides_what_the_projects_leaves_open(tmp_path: Path) -> None:
    """One is not hidden by the other as a whole."""
    write(
        tmp_path / "home/forebay/forebay.toml", "[executor]\ndrain_grace = 1\nidle_timeout = '1min'"
    )
    write(tmp_path / "project/forebay.toml", "[executor]\ndrain_grace = 2")
    found = configured(tmp_path)
    assert (found.executor.drain_grace, found.executor.idle_timeout) == (2.0, 60.0)


def test_a_table_of_pyproject_is_a_file_too(tmp_path: Path) -> None:
    """A project need not have another file; one of another project's tools says nothing."""
    write(tmp_path / "pyproject.toml", "[tool.forebay.pool]\nmax_size = 3")
    foreign = "[tool.ruff]\nline-length = 100\n[tool.forebay-plugin]\nmax_size = 4"
    write(tmp_path / "project/pyproject.toml", foreign)
    found = configured(tmp_path)
    assert found.pool.max_size == 3
    assert found.settings["pool.max_size"].origin == str(tmp_path / "pyproject.toml")


def test_forebay_config_names_the_file(tmp_path: Path) -> None:
    """A service manager has no current directory to look from."""
    named = write(tmp_path / "elsewhere.toml", "[executor]\ndrain_grace = 7")
    write(tmp_path / "project/forebay.toml", "[executor]\ndrain_grace = 2")
    assert drain(configured(tmp_path, {"FOREBAY_CONFIG": str(named)})) == (7.0, str(named))


def test_a_named_file_that_is_missing_is_told(tmp_path: Path) -> None:
    """Going on without it would run with other limits than were asked for."""
    with pytest.raises(ConfigError, match="cannot be read"):
        configured(tmp_path, {"FOREBAY_CONFIG": "/no/such/file.toml"})


def test_the_applications_path_is_relative_to_its_file(tmp_path: Path) -> None:
    """`forebay run tune` works from every folder of the project."""
    write(tmp_path / "project/forebay.toml", "app = 'tune.py:app'")
    assert configured(tmp_path).value("app") == str(tmp_path / "project/tune.py:app")
    write(tmp_path / "project/forebay.toml", "app = 'package.tune:app'")
    assert configured(tmp_path).value("app") == "package.tune:app"


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("FOREBAY_EXECUTOR_MAX_WORKER", "FOREBAY_EXECUTOR_MAX_WORKERS"),
        ("FOREBAY_POOL_MAXSIZE", "FOREBAY_POOL_MAX_SIZE"),
    ],
)
def test_an_unknown_variable_is_told_with_the_nearest(
    tmp_path: Path, variable: str, near: str
) -> None:
    """A typo would silently change nothing."""
    (warning,) = configured(tmp_path, {variable: "8"}).warnings
    assert variable in warning
    assert near in warning


def test_an_unknown_key_is_told_with_its_file(tmp_path: Path) -> None:
    """So that it is found where it was written."""
    file = write(tmp_path / "project/forebay.toml", "[executor]\nqueued = 3\n[execcutor]\nx = 1")
    warnings = configured(tmp_path).warnings
    assert len(warnings) == 2
    assert all(str(file) in warning for warning in warnings)
    assert "executor.max_queued" in warnings[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("executor.drain_grace = 'soon'", "executor.drain_grace.*'soon'"),
        ("executor.max_workers = '2.5'", "executor.max_workers"),
        ("executor.max_workers = true", "executor.max_workers"),
        ("executor.synchronous = 'off'", "synchronous.*full, normal"),
        ("executor.max_queued = 0", "max_queued is 0"),
        ("executor.retention_bytes = -1", "retention_bytes"),
        ("pool.idle_timeout = -1", "idle_timeout"),
        ("app = 3", "app.*no text"),
        ("app = ", "no TOML"),
    ],
)
def test_a_wrong_value_is_told_with_its_origin(tmp_path: Path, text: str, complaint: str) -> None:
    """Nothing is started with half of what was asked for."""
    file = write(tmp_path / "project/forebay.toml", text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        configured(tmp_path)
    assert str(file) in str(caught.value)


def test_sizes_and_times_are_text_with_a_unit_or_numbers(tmp_path: Path) -> None:
    """As everywhere else in the product."""
    environment = {
        "FOREBAY_EXECUTOR_MAX_LOG_BYTES": "1MB",
        "FOREBAY_EXECUTOR_MAX_RESULT_BYTES": "5",
        "FOREBAY_EXECUTOR_RETENTION_AGE": "2d",
        "FOREBAY_EXECUTOR_IDLE_TIMEOUT": "1.5h",
        "FOREBAY_EXECUTOR_MAX_WORKERS": "9",
        "FOREBAY_EXECUTOR_SYNCHRONOUS": "normal",
    }
    found = configured(tmp_path, environment).executor
    assert (found.max_log_bytes, found.max_result_bytes, found.retention_age) == (
        10**6,
        5,
        172_800.0,
    )
    assert (found.idle_timeout, found.max_workers, found.synchronous) == (5400.0, 9, "normal")


def test_every_field_can_be_configured() -> None:
    """A field that no table names could be set by code alone."""
    from dataclasses import fields

    from forebay.config import PoolConfig

    for system, config in (("executor", ExecutorConfig), ("pool", PoolConfig)):
        assert {it.name for it in fields(config)} == set(KINDS[system])


def test_every_setting_of_a_server_is_documented() -> None:
    """A setting that no page names is found by reading the source."""
    page = Path(__file__).resolve().parents[3] / "docs/guides/serving.md"
    rows = {line.split("`")[1] for line in page.read_text().splitlines() if line.startswith("| `")}
    assert rows == set(KINDS["executor"])


HOOK = '[[hooks]]\nname = "ops"\non = ["dead"]\ncommand = ["./told", "x"]\n'


def test_hooks_of_a_file_that_was_found_are_left_out_with_a_warning(tmp_path: Path) -> None:
    """The author of a cloned project would have code run, or be sent what requests raise."""
    project = write(tmp_path / "project/forebay.toml", HOOK + "[executor]\nmax_deaths = 2\n")
    found = configured(tmp_path)
    assert found.hooks == ()
    assert found.executor.max_deaths == 2
    (warning,) = found.warnings
    assert str(project) in warning
    assert f"FOREBAY_CONFIG={project}" in warning
    assert "FOREBAY_HOOKS" in warning
    assert "~/.config/forebay/forebay.toml" in warning


def test_hooks_are_read_from_where_their_user_wrote_them(tmp_path: Path) -> None:
    """The file of the user, one that is named, and the environment."""
    users = write(tmp_path / "home/forebay/forebay.toml", HOOK)
    (hook,) = configured(tmp_path).hooks
    assert hook.command == (str(users.parent / "told"), "x")
    assert (hook.name, hook.on, hook.names, hook.above, hook.free) == (
        "ops",
        ("dead",),
        (),
        0.9,
        10**9,
    )
    named = write(
        tmp_path / "named.toml",
        '[[hooks]]\nname = "a"\nurl = "https://a.org/x"\nsecret_file = "s"\nfree = "2GB"\n'
        'on = ["disk", "failed"]\nnames = ["tune"]\nabove = 0.5\n',
    )
    (hook,) = configured(tmp_path, {"FOREBAY_CONFIG": str(named)}).hooks
    assert (hook.secret_file, hook.free, hook.above) == (str(tmp_path / "s"), 2 * 10**9, 0.5)
    assert (hook.on, hook.names) == (("disk", "failed"), ("tune",))
    text = (
        '[{"name": "b", "url": "http://localhost:8000/x", "secret_file": "/s"},'
        ' {"name": "c", "command": ["true"]}, {"name": "d", "command": ["/bin/true", "./x"]}]'
    )
    found = configured(tmp_path, {"FOREBAY_HOOKS": text})
    assert [hook.name for hook in found.hooks] == ["b", "c", "d"]
    assert found.settings["hooks"].shown == "b, c, d"
    assert "localhost:8000/x" not in repr(found.settings["hooks"])
    assert found.hooks[0].target == "http://localhost:8000"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}", "no list of hooks"),
        ("[", "no JSON"),
        ('[{"on": ["dead"]}]', "a table with at least name"),
        ('[{"name": "a b", "url": "https://a"}]', "a name has 1 to 64 letters"),
        ('[{"name": "a"}]', "neither or both of command and url"),
        ('[{"name": "a", "url": "https://a", "command": ["b"]}]', "neither or both"),
        ('[{"name": "a", "url": "http://a.org/"}]', "to another machine"),
        ('[{"name": "a", "url": "ftp://a.org/"}]', "none of https://host/path"),
        ('[{"name": "a", "url": "https://a:x/"}]', "cannot be read"),
        ('[{"name": "a", "url": "https://u:p@a/"}]', "has a user"),
        ('[{"name": "a", "url": "https://a/ b"}]', "a space"),
        ('[{"name": "a", "command": "rm -rf /"}]', "no list of texts"),
        ('[{"name": "a", "command": ["b"], "secret_file": "/s"}]', "a command is not signed"),
        ('[{"name": "a", "url": "https://a", "on": ["died"]}]', "give some of dead, failed"),
        ('[{"name": "a", "url": "https://a", "on": []}]', "on is empty"),
        ('[{"name": "a", "url": "https://a", "above": 90}]', "a part of the limit"),
        ('[{"name": "a", "url": "https://a", "free": "much"}]', "cannot be read"),
        ('[{"name": "a", "url": "https://a", "secret": "s"}]', "'secret' is none of"),
        ('[{"name": "a", "url": "https://a"}, {"name": "a", "url": "https://b"}]', "two hooks"),
        ('[{"name": "a", "command": ["./b"]}]', r"hook 'a': command './b' is relative.*with /"),
        ('[{"name": "a", "url": "https://a", "secret_file": "s"}]', "secret_file 's' is relative"),
        ('[{"name": "a", "url": "https://a", "secret_file": "~/s"}]', "'~/s' is relative"),
    ],
)
def test_what_is_wrong_with_a_hook_is_said(tmp_path: Path, text: str, complaint: str) -> None:
    """Before the server runs, not when the first request is dead."""
    with pytest.raises(ConfigError, match=complaint) as caught:
        configured(tmp_path, {"FOREBAY_HOOKS": text})
    assert "FOREBAY_HOOKS" in str(caught.value)
