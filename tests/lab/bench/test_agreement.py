"""Test lab.bench.agreement: the error that a number format is said to have."""

from __future__ import annotations

import torch

from lab.bench.agreement import measure_agreement
from lab.bench.presets import preset, preset_dual_ar

CPU = torch.device("cpu")


def test_a_model_agrees_with_itself_and_less_with_fewer_bits() -> None:
    shape = preset("tiny")
    exact, half, eight = (
        preset_dual_ar(shape, device=CPU, dtype=dtype) for dtype in ("float32", "bfloat16", "int8")
    )

    itself = measure_agreement(exact, exact, frames=4, seed=0)
    of_half = measure_agreement(half, exact, frames=4, seed=0)
    of_eight = measure_agreement(eight, exact, frames=4, seed=0)

    assert (itself.logits_error, itself.top1_agreement) == (0.0, 1.0)
    assert 1e-4 < of_half.logits_error < 0.05
    assert 1e-3 < of_eight.logits_error < 0.2
    assert 0.5 < of_eight.top1_agreement <= 1


def test_other_weights_do_not_agree() -> None:
    shape = preset("tiny")
    one, other = (preset_dual_ar(shape, device=CPU, dtype="float32", seed=seed) for seed in (0, 1))

    assert measure_agreement(one, other, frames=3, seed=0).logits_error > 0.5
