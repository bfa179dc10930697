"""The metrics of a server as text: Prometheus 0.0.4, or OpenMetrics 1.0 for those who ask.

By hand: what comes is lists of numbers with their names, which a registry would only copy, and
importing prometheus_client takes 3.5 MB of a process that has 30.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from forebay.gateway.metrics.families import FAMILIES

__all__ = ["OPENMETRICS_TYPE", "TEXT_TYPE", "render", "wants_openmetrics"]

TEXT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = b"application/openmetrics-text; version=1.0.0; charset=utf-8"

_OPENMETRICS: Final = b"application/openmetrics-text"
_TYPES: Final = {"counters": "counter", "gauges": "gauge", "histograms": "histogram"}
_VALUE_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def wants_openmetrics(accept: bytes) -> bool:
    """Whether the header `Accept` names OpenMetrics; Prometheus does, before the older form."""
    return _OPENMETRICS in accept.lower()


def render(metrics: Mapping[str, Iterable[Any]], *, openmetrics: bool = False) -> bytes:
    """The text of metrics as the server gives them.

    Args:
        metrics: "counters" and "gauges" as `[name, labels, number]`, "histograms" as
            `[name, labels, [[bound, count of values up to it], ...], sum, count]`; a metric's
            entries need not stand together. A metric that is not in `FAMILIES`, of a newer server,
            is shown without a help line.
        openmetrics: in that format, whose names of counters are declared without `_total`.
    """
    families: dict[str, list[str]] = {}
    for kind, type_name in _TYPES.items():
        for name, labels, *numbers in metrics.get(kind, ()):
            lines = families.get(name)
            if lines is None:
                lines = families[name] = _heads(name, type_name, openmetrics=openmetrics)
            if kind == "histograms":
                lines += _histogram(name, labels, *numbers)
            else:
                lines.append(f"{name}{_labels(labels)} {_number(numbers[0])}")
    text = [line for lines in families.values() for line in lines]
    if openmetrics:
        text.append("# EOF")
    return ("\n".join(text) + "\n").encode() if text else b""


def _heads(name: str, type_name: str, *, openmetrics: bool) -> list[str]:
    """The lines that say what a metric is."""
    declared = name.removesuffix("_total") if openmetrics and type_name == "counter" else name
    heads = [f"# TYPE {declared} {type_name}"]
    family = FAMILIES.get(name)
    if family is not None:
        escapes = _VALUE_ESCAPES if openmetrics else _HELP_ESCAPES
        heads.insert(0, f"# HELP {declared} {family.help.translate(escapes)}")
    return heads


def _histogram(
    name: str,
    labels: Mapping[str, str],
    buckets: Iterable[tuple[float, float]],
    total: float,
    count: float,
) -> Iterable[str]:
    for bound, up_to in buckets:
        if bound != math.inf:  # that one is the count
            yield f"{name}_bucket{_labels({**labels, 'le': _bound(bound)})} {_number(up_to)}"
    yield f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {_number(count)}"
    yield f"{name}_sum{_labels(labels)} {_number(total)}"
    yield f"{name}_count{_labels(labels)} {_number(count)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    told = ",".join(f'{name}="{value.translate(_VALUE_ESCAPES)}"' for name, value in labels.items())
    return f"{{{told}}}"


def _bound(bound: float) -> str:
    """A bound as OpenMetrics writes it: always a float."""
    return repr(float(bound))


def _number(number: float) -> str:
    """A number in its shortest form; whole ones without a point, as counters are read by people."""
    if number != number:
        return "NaN"
    if number in (math.inf, -math.inf):
        return "+Inf" if number > 0 else "-Inf"
    return str(int(number)) if number == int(number) and abs(number) < 2**53 else repr(number)
