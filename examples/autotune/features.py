"""What is known of a program before any flag is tried: of its source, and of its -Os build."""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt

from examples.gcc_tuning.results import Result

__all__ = ["FEATURES", "features"]

_IGNORED = re.compile(
    r"/\*.*?\*/|//[^\n]*|^#[^\n]*$|\"(?:\\.|[^\"\n])*\"", re.DOTALL | re.MULTILINE
)
_TOKEN = re.compile(r"\w+|[^\s\w]")
# Shares of the source's tokens, and of the build's instructions by mnemonic.
_IN_SOURCE = {
    "loops": re.compile(r"for|while"),
    "branches": re.compile(r"if|case|\?"),
    "parentheses": re.compile(r"\("),
    "indices": re.compile(r"\["),
    "floats": re.compile(r"float|double"),
    "divisions": re.compile(r"[/%]"),
    "members": re.compile(r"\.|>"),  # an arrow ends so, and so do comparisons
}
_IN_BUILD = {
    "called": re.compile(r"call"),
    "jumps": re.compile(r"j(?!mp).*|set.*|cmov.*"),
    "stack": re.compile(r"push|pop"),
    "moves": re.compile(r"mov.*"),
    "arithmetic": re.compile(r"lea|i?mul|i?div|sh[lr]|sar"),
    "sse": re.compile(r".*[sp][sd]"),
}
FEATURES: tuple[str, ...] = (*_IN_SOURCE, *_IN_BUILD, "bytes", "constants")


def features(source: str, built: Result) -> npt.NDArray[np.float32]:
    """Describe a program by numbers of about the size of one.

    Args:
        source: its text.
        built: what the compiler made of it at -Os, with its opcodes counted.

    Returns:
        One number for each of `FEATURES`.
    """
    tokens = _TOKEN.findall(_IGNORED.sub(" ", source))
    in_source = [
        sum(1 for token in tokens if kind.fullmatch(token)) / max(len(tokens), 1)
        for kind in _IN_SOURCE.values()
    ]
    opcodes = built["opcodes"]
    instructions = max(sum(opcodes.values()), 1)
    in_build = [
        sum(count for name, count in opcodes.items() if kind.fullmatch(name)) / instructions
        for kind in _IN_BUILD.values()
    ]
    size = max(built["bytes"], 1)
    code = sum(each for name, each in built["sections"].items() if name.startswith(".text"))
    return np.array([*in_source, *in_build, math.log2(size), 1 - code / size], np.float32)
