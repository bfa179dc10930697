"""Names that the pool uses in a service class, and what each may be."""

from __future__ import annotations

from typing import Any

from forebay.errors import ConfigError
from forebay.pool.service.reset import Reset

HOOKS = {
    "reset": "runs when a lease ends",
    "close": "runs before a service ends",
    "reseed": "runs in each copy of a service",
}
"""Methods that the pool calls, without arguments."""

TAKEN = {
    "lease": "on a proxy it is the lease",
    "spec": "it describes a service with its arguments",
}
"""Names that no service can use."""


def check_names(service: type, base: type) -> None:
    """Refuse a class that defines a name of the pool as something else.

    Raises:
        ConfigError: it does; the message says what the pool uses the name for.
    """
    own = vars(service)
    for name, purpose in TAKEN.items():
        if name in own:
            raise _refusal(service, name, f"{purpose}; give it another name")
    for name, purpose in HOOKS.items():
        missing = _required(own.get(name))
        if missing:
            raise _refusal(
                service,
                name,
                f"it {purpose}, and is called without arguments: give {', '.join(missing)} a "
                f"default, or, where callers are to use it, another name than {name!r}",
            )
    for name in vars(base).get("__annotations__", {}):
        if name in own and name not in TAKEN and not _fits(name, own[name]):
            raise _refusal(
                service,
                name,
                f"it is a setting, {_SETTINGS[name]}, and here it is {own[name]!r}; "
                "give a method another name",
            )


_SETTINGS = {
    "resets": "a forebay.Reset or None",
    "max_leases": "a whole number, 1 or more",
    "stateful": "True or False",
    "canary_ignores": "a collection of names",
    "limits": "a forebay.Limits or None",
    "chdir": "True or False",
}
"""The settings of a class, each with a description of its values."""


def _fits(name: str, value: Any) -> bool:
    if name == "resets":
        return value is None or isinstance(value, Reset)
    if name == "max_leases":
        return type(value) is int and value >= 1
    if name in ("stateful", "chdir"):
        return isinstance(value, bool)
    if name == "limits":
        return value is None or hasattr(value, "terms")  # without importing what it is
    return not isinstance(value, str) and hasattr(value, "__contains__")


def _required(method: Any) -> list[str]:
    """Arguments without a default of a method. Importing `inspect` for this would cost 10 ms."""
    code = getattr(method, "__code__", None)
    if code is None:
        return []
    optional = len(method.__defaults__ or ())
    positional = code.co_varnames[1 : code.co_argcount - optional]
    keywords = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    given = method.__kwdefaults__ or {}
    return [*positional, *(name for name in keywords if name not in given)]


def _refusal(service: type, name: str, why: str) -> ConfigError:
    return ConfigError(
        f"service class {service.__qualname__} defines {name!r}, a name of the pool's: {why}"
    )
