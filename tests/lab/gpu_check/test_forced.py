"""Steps over given columns: the same ones agree, and what differs is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lab.bench.presets import preset_dual_ar
from lab.bench.stepping import has_kernels, without_kernels
from lab.gpu_check.agreement import Forced, forced_steps
from synth.engine.model.dual_ar import DualAR
from synth.engine.presets import preset

FRAMES = 6


@pytest.fixture(scope="module")
def model() -> DualAR:
    return preset_dual_ar(preset("tiny"), device=torch.device("cpu"), dtype="float32")


@pytest.fixture(scope="module")
def steps(model: DualAR) -> Forced:
    return forced_steps(model, frames=FRAMES)


def test_a_model_agrees_with_itself(model: DualAR, steps: Forced) -> None:
    again = forced_steps(without_kernels(model), frames=FRAMES)
    assert steps.columns.shape == (FRAMES, 2, 11)
    assert steps.compared(again) == {"cache_error": 0.0, "same_tokens": 1.0, "same_codes": 1.0}


def test_what_is_stepped_over_is_given_and_not_what_was_taken(steps: Forced) -> None:
    other = preset_dual_ar(preset("tiny"), device=torch.device("cpu"), dtype="bfloat16")
    found = steps.compared(forced_steps(other, frames=FRAMES))
    assert 0 < found["cache_error"] < 0.05  # the same columns went in, whatever was drawn


def test_a_code_counts_only_behind_equal_ones(steps: Forced) -> None:
    columns = steps.columns.clone()
    columns[0, 0, 3] += 1  # what follows in its frame is another frame's continuation
    columns[0, 0, 4:] += 1
    columns[1, 1, 0] += 1

    found = steps.compared(replace(steps, columns=columns))

    assert found["same_tokens"] == pytest.approx(1 - 1 / (2 * FRAMES))
    # One whole frame less, and of another one what comes behind the code that differs.
    judged = 9 * (2 * FRAMES - 1) - 7
    assert found["same_codes"] == pytest.approx(1 - 1 / judged)


def test_a_model_without_kernels_shares_every_weight(model: DualAR) -> None:
    model.has_kernels = True
    try:
        plain = without_kernels(model)

        assert has_kernels(model)
        assert not has_kernels(plain)
        table = model.slow.embeddings.weight
        assert plain.slow.embeddings.weight.data_ptr() == table.data_ptr()
    finally:
        model.has_kernels = False
