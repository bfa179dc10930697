"""The setting of a hook: what calls it, and what it calls.

A command runs code, and a URL gets the names and errors of requests: `forebay.configuration` reads
hooks from nowhere but the environment, the file of the user, and a file that the user names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from forebay.config import parse_bytes
from forebay.errors import ConfigError

__all__ = ["EVENTS", "HookConfig", "hooks_of", "placed"]

EVENTS: Final = ("dead", "failed", "memory", "queue", "disk")
"""What may call a hook: a request that was set aside or failed, or a limit that is near."""

HOOKS_MAX: Final = 32
"""Each is asked for its turn; more than a few are better one that passes calls on."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class HookConfig:
    """A hook.

    Attributes:
        name: for commands, the log and metrics.
        on: what calls it, of `EVENTS`.
        names: only for requests of these names; empty: of all.
        command: a program and its arguments, without a shell; or:
        url: of a webhook, https; http only to this machine.
        secret_file: what the webhook's calls are signed with; "": they are not.
        above: the part of the memory limit, or of `max_queued`, above which it is called.
        free: bytes; it is called when the disk of the state directory has less.
    """

    name: str
    on: tuple[str, ...] = ("dead",)
    names: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    url: str = ""
    secret_file: str = ""
    above: float = 0.9
    free: int = 10**9

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"hook {self.name!r}: a name has 1 to 64 letters, digits, '.', '_' and '-'"
            )
        self._check_on()
        if bool(self.command) == bool(self.url):
            raise self._wrong("it has neither or both of command and url; give one of them")
        if self.url:
            self._check_url()
        elif self.secret_file:
            raise self._wrong("secret_file is for a url; a command is not signed")
        if not isinstance(self.above, int | float) or not 0.1 < self.above <= 1:
            raise self._wrong(f"above is {self.above!r}; give a part of the limit, such as 0.9")

    def _check_on(self) -> None:
        if not self.on:
            raise self._wrong(f"on is empty; give some of {', '.join(EVENTS)}")
        for event in self.on:
            if event not in EVENTS:
                raise self._wrong(f"on has {event!r}; give some of {', '.join(EVENTS)}")

    def _check_url(self) -> None:
        from urllib.parse import urlsplit  # only where there is a url

        try:
            parts = urlsplit(self.url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise self._wrong("its url cannot be read") from None
        if parts.scheme not in ("https", "http") or not host or not self.url.isprintable():
            raise self._wrong("its url is none of https://host/path")
        if parts.scheme == "http" and host not in _LOOPBACK:
            raise self._wrong(
                "its url is http:// to another machine, where anybody may read it;"
                " give an https:// one"
            )
        if parts.username is not None:
            raise self._wrong("its url has a user; sign calls with secret_file instead")
        if " " in self.url or not self.url.isascii():
            raise self._wrong("its url has a space or letters that are not ASCII; escape them")

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"hook {self.name!r}: {what}")

    @property
    def target(self) -> str:
        """What it calls, for people; the path of a URL may be a secret, and stays out."""
        if self.command:
            return self.command[0]
        from urllib.parse import urlsplit

        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @classmethod
    def of(cls, given: Any) -> Self:
        """A hook as a file of settings has it.

        Raises:
            ConfigError: something of it is wrong.
        """
        if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
            raise ConfigError("a hook is a table with at least name, on, and command or url")
        name = given["name"]
        known = {field.name for field in fields(cls)}
        for key in given:
            if key not in known:
                raise ConfigError(f"hook {name!r}: {key!r} is none of {', '.join(sorted(known))}")
        values = dict(given)
        for key in ("on", "names", "command"):
            if key in values:
                values[key] = _texts(name, key, values[key])
        for key in ("url", "secret_file"):
            if not isinstance(values.get(key, ""), str):
                raise ConfigError(f"hook {name!r}: {key} is no text")
        if "free" in values:
            values["free"] = parse_bytes(values["free"])
        return cls(**values)


def _texts(name: str, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(it, str) for it in value):
        raise ConfigError(f"hook {name!r}: {key} is no list of texts")
    return tuple(value)


def hooks_of(value: Any) -> tuple[HookConfig, ...]:
    """Hooks as a file of settings has them, or as JSON text, which a variable has.

    Raises:
        ConfigError: one of them is wrong, or two have one name.
    """
    if isinstance(value, str):
        import json  # only for a variable

        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"it is no JSON: {error}") from None
        _check_absolute(value)
    if not isinstance(value, list | tuple):
        raise ConfigError("it is no list of hooks; write [[hooks]] above each")
    if len(value) > HOOKS_MAX:
        raise ConfigError(f"there are {len(value)} hooks; give at most {HOOKS_MAX} (hooks_max)")
    hooks = tuple(it if isinstance(it, HookConfig) else HookConfig.of(it) for it in value)
    names = [hook.name for hook in hooks]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two hooks are called {name!r}; give each a name of its own")
    return hooks


def _check_absolute(value: Any) -> None:
    """Check the paths of a variable, which has no directory that they could be relative to.

    Raises:
        ConfigError: one of them is relative.
    """
    for hook in value if isinstance(value, list) else ():
        if not isinstance(hook, dict):
            continue
        command = hook.get("command")
        program = command[0] if isinstance(command, list) and command else None
        for key, path in (("secret_file", hook.get("secret_file")), ("command", program)):
            is_path = isinstance(path, str) and (key == "secret_file" or "/" in path)
            if is_path and path and not path.startswith("/"):
                raise ConfigError(
                    f"hook {hook.get('name')!r}: {key} {path!r} is relative, and a variable has no"
                    " directory; give a path that begins with /"
                )


def placed(value: Any, directory: Path) -> Any:
    """Hooks with the paths of a file relative to its directory; what is wrong stays as it is."""
    if not isinstance(value, list):
        return value
    return [_placed(hook, directory) if isinstance(hook, dict) else hook for hook in value]


def _placed(hook: dict[str, Any], directory: Path) -> dict[str, Any]:
    secret, command = hook.get("secret_file"), hook.get("command")
    if isinstance(secret, str) and secret:
        hook = {**hook, "secret_file": str(directory / Path(secret).expanduser())}
    if isinstance(command, list) and command and isinstance(command[0], str):
        program = command[0]
        if "/" in program:  # else it is looked for in PATH
            program = str(directory / Path(program).expanduser())
        hook = {**hook, "command": [program, *command[1:]]}
    return hook
