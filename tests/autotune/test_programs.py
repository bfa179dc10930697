"""The programs to train on, and what is known of them before any flag is tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.autotune import programs
from examples.autotune.features import FEATURES, features
from examples.gcc_tuning.toolchain import Toolchain

pytestmark = pytest.mark.needs("gcc")


def test_every_kernel_is_built_and_computes_the_same_at_every_level(tmp_path: Path) -> None:
    """A program that fails its check by itself would teach that flags break programs."""
    unseen = set(programs.kernels())
    names = []
    for name in programs.TRAINING:
        new = {kernel for kernel in unseen if f"unsigned {kernel}(" in programs.source(name)}
        if new:
            unseen -= new
            names.append(name)
    assert not unseen
    programs.write(names, tmp_path)
    toolchain = Toolchain(tmp_path)
    for name in names:
        for level in ("-Os", "-O3"):
            result = toolchain.compile(name, [level, "-fno-strict-aliasing"])
            assert result["outcome"] == "good", (name, result)
    toolchain.clean()


def test_programs_are_the_same_everywhere_and_another_choice_for_each_seed() -> None:
    """Nodes of a cluster make them anew; what a seed finds must not depend on which node."""
    texts = {programs.source(name) for name in programs.TRAINING}
    assert len(texts) == len(programs.TRAINING)
    programs.source.cache_clear()
    assert {programs.source(name) for name in programs.TRAINING} == texts
    assert programs.training(20, 1) == programs.training(20, 1) != programs.training(20, 2)


def test_nothing_is_learned_from_programs_to_judge_by() -> None:
    """A comparison on programs that were trained on says nothing."""
    assert not set(programs.TRAINING) & set(programs.HELD_OUT)
    assert len(programs.HELD_OUT) == 8
    with pytest.raises(ValueError, match="no program 'made_200'"):
        programs.source("made_200")


def test_features_tell_programs_apart_and_do_not_see_comments(tmp_path: Path) -> None:
    """The model knows a program by nothing else."""
    programs.write(["lz", "matrix"], tmp_path)
    toolchain = Toolchain(tmp_path)
    known = {}
    for name in ("lz", "matrix"):
        built = toolchain.compile(name, ["-Os"], opcodes=True)
        known[name] = features(programs.source(name), built)
        assert known[name].shape == (len(FEATURES),)
        assert np.isfinite(known[name]).all()
        commented = f"/* for while if */\n// double\n{programs.source(name)}"
        assert np.array_equal(features(commented, built), known[name])
    toolchain.clean()
    assert not np.isclose(known["lz"], known["matrix"]).all()
