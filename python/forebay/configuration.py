"""Where each setting comes from: argument, environment, `forebay.toml`, the user's file, default.

The first that says anything decides:

1. an argument of the command line or of a function;
2. `FOREBAY_<SYSTEM>_<FIELD>`, as in `FOREBAY_POOL_MAX_SIZE`;
3. `forebay.toml`, or `[tool.forebay]` of `pyproject.toml`, in this directory or the nearest one
   above it that has one, unless other users can have written it, which ends the search with a
   warning; or the file that `FOREBAY_CONFIG` names;
4. `forebay/forebay.toml` in `$XDG_CONFIG_HOME`, which is `~/.config` where it is not set;
5. the default.

A file has the general settings at its top and a table for each system:

    app = "tune.py:app"

    [executor]
    max_workers = 8
    retention_age = "2d"

Hooks are a list of tables, or JSON in the variable `FOREBAY_HOOKS`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from forebay._configuration_place import nearest, users
from forebay._hook_config import HookConfig, hooks_of, placed
from forebay.config import (
    KINDS,
    BlockioConfig,
    ExecutorConfig,
    GatewayConfig,
    PoolConfig,
    TensorConfig,
    parse_bytes,
    parse_seconds,
)
from forebay.errors import ConfigError

__all__ = ["Configuration", "Setting", "find_configuration"]

GENERAL: Final = (
    "app",
    "url",
    "token",
    "token_file",
    "state_dir",
    "log_level",
    "log_format",
    "hooks",
)
"""Settings that belong to no system; their variables are FOREBAY_APP and so on."""

CREDENTIALS: Final = ("token", "token_file")
"""What a client shows to a server. A file of settings that was found, not named, cannot say it: who
wrote that file may be the author of a project that was cloned, and could name any file to send."""

UNTRUSTED: Final = (*CREDENTIALS, "hooks")
"""What such a file cannot say. A hook runs a command, or sends names and errors of requests."""

HIDDEN: Final = frozenset({"token"})
"""Settings whose values are shown nowhere."""

_LOG_FORMATS: Final = ("text", "json")

_CONFIGS: Final[dict[str, Any]] = {
    "pool": PoolConfig,
    "executor": ExecutorConfig,
    "gateway": GatewayConfig,
    "blockio": BlockioConfig,
    "tensor": TensorConfig,
}

_OTHER_VARIABLES: Final = frozenset(
    {"FOREBAY_CONFIG", "FOREBAY_POOL_PATH", "FOREBAY_POOL_CGROUP", "FOREBAY_TESTING_MARK"}
    | {"FOREBAY_CHAOS_DIRECTORY", "FOREBAY_CHAOS_LEDGER"}
)
"""Variables that are no setting."""


class Setting(NamedTuple):
    """One setting as `forebay config` shows it.

    Attributes:
        name: "app", or "executor.max_workers".
        value: as it is used: bytes, seconds, text, or None where there is no default.
        origin: what said so: "argument", a variable's name, a file's path, or "default".
    """

    name: str
    value: Any
    origin: str

    @property
    def shown(self) -> Any:
        """The value for people; that of a token stays hidden, and of hooks there are names."""
        if self.name == "hooks" and self.value is not None:
            return ", ".join(hook.name for hook in self.value)
        return "<hidden>" if self.name in HIDDEN and self.value is not None else self.value

    def __repr__(self) -> str:
        return f"Setting(name={self.name!r}, value={self.shown!r}, origin={self.origin!r})"


@dataclass(frozen=True, slots=True)
class Configuration:
    """All settings, and where they come from.

    Attributes:
        settings: by name, in the order of the documentation.
        warnings: one text for each variable or key that nobody knows, with the nearest name.
        files: the files that were read, the one that decides first.
        found: of these, one that was found in a directory rather than named, or the user's own.
    """

    settings: Mapping[str, Setting]
    warnings: tuple[str, ...]
    files: tuple[Path, ...]
    found: Path | None = None

    def value(self, name: str) -> Any:
        """The value of a setting, such as "app" or "executor.drain_grace"."""
        return self.settings[name].value

    @property
    def hooks(self) -> tuple[HookConfig, ...]:
        """What is called when a request is dead, or a limit is near."""
        hooks: tuple[HookConfig, ...] = self.value("hooks") or ()
        return hooks

    @property
    def pool(self) -> PoolConfig:
        """The settings of a pool."""
        return PoolConfig(**self._of("pool"))

    @property
    def executor(self) -> ExecutorConfig:
        """The settings of a server that runs requests."""
        return ExecutorConfig(**self._of("executor"))

    @property
    def gateway(self) -> GatewayConfig:
        """The settings of a gateway."""
        return GatewayConfig(**self._of("gateway"))

    @property
    def blockio(self) -> BlockioConfig:
        """The settings of a queue of block operations."""
        return BlockioConfig(**self._of("blockio"))

    @property
    def tensor(self) -> TensorConfig:
        """The settings of tensor servers and clients."""
        return TensorConfig(**self._of("tensor"))

    def _of(self, system: str) -> dict[str, Any]:
        return {field: self.settings[f"{system}.{field}"].value for field in KINDS[system]}


class _Source(NamedTuple):
    """Texts or values by the name of their setting, with the origin of each."""

    found: dict[str, tuple[Any, str]]
    warnings: list[str]


def find_configuration(
    arguments: Mapping[str, Any] | None = None,
    *,
    start: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """Collect every setting.

    Args:
        arguments: settings by name, such as {"executor.drain_grace": "10s"}; None says nothing.
        start: the directory from which a file is looked for upwards; default: the current one.
        environment: default: this process's.

    Raises:
        ConfigError: a file cannot be read, or a value is wrong; the message names its origin.
    """
    environment = os.environ if environment is None else environment
    near = nearest(start, environment)
    found = None if environment.get("FOREBAY_CONFIG") else near
    files = [path for path in (near, users(environment)) if path]
    given = {name: (it, "argument") for name, it in (arguments or {}).items() if it is not None}
    sources = [
        _Source(given, _unknown(given, "argument")),
        _from_environment(environment),
        *(_without_credentials(path) if path == found else _from_file(path) for path in files),
    ]
    settings = {name: _decide(name, sources) for name in _defaults()}
    warnings = tuple(warning for source in sources for warning in source.warnings)
    configuration = Configuration(settings, warnings, tuple(files), found)
    _check(configuration)
    return configuration


@functools.cache
def _defaults() -> dict[str, Any]:
    """Every setting by name, with its default."""
    defaults: dict[str, Any] = dict.fromkeys(GENERAL)
    for system, config in _CONFIGS.items():
        defaults |= {f"{system}.{it.name}": it.default for it in fields(config)}
    return defaults


def _decide(name: str, sources: list[_Source]) -> Setting:
    for source in sources:
        if name in source.found:
            value, origin = source.found[name]
            return Setting(name, _read(name, value, origin), origin)
    return Setting(name, _defaults()[name], "default")


def _read(name: str, value: Any, origin: str) -> Any:
    """A value as the configuration wants it."""
    system, _, field = name.rpartition(".")
    kind = KINDS[system][field] if system else "word"
    try:
        if name == "hooks":
            return hooks_of(value)
        if kind == "count":
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ConfigError(f"{value!r} is no whole number")
            return int(value)
        if kind == "word":
            if not isinstance(value, str | os.PathLike):
                raise ConfigError(f"{'it' if name in HIDDEN else repr(value)} is no text")
            return os.fspath(value)
        if kind == "size":
            return parse_bytes(_number(value))
        return parse_seconds(_number(value))
    except ValueError as error:  # ConfigError is one
        raise ConfigError(f"{name}, from {origin}: {error}") from None


def _number(value: Any) -> Any:
    """Text of digits alone as a number: a variable has no other way to say one."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _check(configuration: Configuration) -> None:
    """Have the systems check their values, and name where a wrong one comes from."""
    form = configuration.settings["log_format"]
    if form.value not in (None, *_LOG_FORMATS):
        words = ", ".join(_LOG_FORMATS)
        raise ConfigError(f"log_format is {form.value!r}, from {form.origin}; give one of {words}")
    for system in _CONFIGS:
        try:
            getattr(configuration, system)
        except ConfigError as error:
            field = str(error).partition(" ")[0]
            setting = configuration.settings.get(f"{system}.{field}")
            origin = f", from {setting.origin}" if setting else ""
            raise ConfigError(f"{system}: {error}{origin}") from None


def _variable(name: str) -> str:
    return "FOREBAY_" + name.replace(".", "_").upper()


def _from_environment(environment: Mapping[str, str]) -> _Source:
    names = {_variable(name): name for name in _defaults()}
    found: dict[str, tuple[Any, str]] = {}
    strange = []
    for variable, text in environment.items():
        if variable in names and text:
            found[names[variable]] = (text, variable)
        elif variable.startswith("FOREBAY_") and variable not in {*names, *_OTHER_VARIABLES}:
            strange.append(f"{variable} is no setting{_near(variable, names)}")
    return _Source(found, strange)


def _from_file(path: Path) -> _Source:
    table = _table(path)
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if key in _CONFIGS and isinstance(value, dict):
            flat |= {f"{key}.{field}": it for field, it in value.items()}
        else:
            flat[key] = value
    if isinstance(flat.get("app"), str):
        flat["app"] = _beside(path, flat["app"])
    for name in ("state_dir", "token_file"):
        if isinstance(flat.get(name), str):
            flat[name] = str(path.parent / Path(flat[name]).expanduser())
    if "hooks" in flat:
        flat["hooks"] = placed(flat["hooks"], path.parent)
    found = {name: (value, str(path)) for name, value in flat.items()}
    return _Source(found, _unknown(found, str(path)))


def _without_credentials(path: Path) -> _Source:
    """What a file says that was found; see `CREDENTIALS` and `UNTRUSTED`."""
    source = _from_file(path)
    for name in UNTRUSTED:
        if source.found.pop(name, None) is not None:
            source.warnings.append(
                f"{path}: {name} is not read from a file that was found; set {_variable(name)}, or"
                " write it into the file of the user (~/.config/forebay/forebay.toml), or name"
                f" this file: FOREBAY_CONFIG={path}"
            )
    return source


def _beside(path: Path, app: str) -> str:
    """An application's file as a configuration file names it: relative to that file."""
    application = app.partition(":")[0]
    is_file = application.endswith(".py") or "/" in application
    return str(path.parent / app) if is_file else app


def _unknown(found: Mapping[str, Any], origin: str) -> list[str]:
    """Texts for names that no setting has, which are taken out by nobody asking for them."""
    known = _defaults()
    return [f"{origin}: {it} is no setting{_near(it, known)}" for it in found if it not in known]


def _near(name: str, known: Mapping[str, Any]) -> str:
    import difflib  # only where there is something to mistake

    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else "; see: forebay config"


def _table(path: Path) -> dict[str, Any]:
    """What a file says about Forebay."""
    import tomllib

    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    if path.name == "pyproject.toml":
        content = content.get("tool", {}).get("forebay", {})
    return content
