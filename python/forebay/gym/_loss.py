"""What a lost environment says, in its error or its info."""

from __future__ import annotations

import multiprocessing
from typing import Any

from forebay.errors import ConfigError, DeadlineError, DiedError

__all__ = [
    "SpacesError",
    "WaitTimeoutError",
    "advise",
    "as_raised",
    "loss_info",
    "name_environment",
]


class SpacesError(ConfigError, RuntimeError):
    """The environments of one vector environment have different spaces."""


class WaitTimeoutError(DeadlineError, multiprocessing.TimeoutError):
    """An environment did not answer in time: also what AsyncVectorEnv raises then."""


def as_raised(error: BaseException) -> BaseException:
    """The error of a call as programs that were written for AsyncVectorEnv catch it."""
    if type(error) is not DeadlineError:
        return error
    late = WaitTimeoutError(*error.args, timeout=error.timeout)
    late.__dict__.update(error.__dict__)
    return late.with_traceback(error.__traceback__)


def loss_info(error: BaseException) -> dict[str, Any]:
    """`error` (the message), `error_type`, and `error_details`: what is known of a death."""
    names = ("cause", "exit_code", "signal", "timeout", "stderr_tail")
    known = {name: getattr(error, name, None) for name in names}
    details = {name: value for name, value in known.items() if value not in (None, "")}
    return {"error": str(error), "error_type": type(error).__name__, "error_details": details}


def name_environment(error: BaseException, index: int, count: int) -> BaseException:
    """Put into the message which environment it was; `.environment` says it too."""
    if isinstance(error, DiedError):
        what = "was lost"
    elif isinstance(error, DeadlineError):
        what = "did not answer and was ended"
    else:
        what = "failed"
    text = error.args[0] if error.args else type(error).__name__
    error.args = (f"environment {index} of {count} {what}: {text}", *error.args[1:])
    error.environment = index  # type: ignore[attr-defined]
    return error


def advise(error: BaseException) -> BaseException:
    """Add to an error of a call what to do after it."""
    error.add_note(
        "the other environments are usable; reset() this one, alone by options['reset_mask'],"
        " or make_vec(..., restart=True), which does so by itself"
    )
    return error
