"""Compute in a GPU's number formats on a CPU: PyTorch's products, rounded as a GPU's kernels do.

Matrices, inputs and what goes from layer to layer have the numbers that they have there; keys and
values are float32, and sums of float32 are added in another order.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from lab.bench.models.preset_weights import assign_weights, lm_weights, special_ids
from lab.bench.models.shapes import Preset
from synth.engine.loading.engine_config import FP8_CAPABILITY, Card, card_numbers
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.config import load_config
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.linear import ScaledLinear, multiply_scaled

_CARD = Card("a GPU", FP8_CAPABILITY, memory=0)  # memory counts for `auto` alone


def emulate_checkpoint(checkpoint: Path, dtype: str) -> DualAR:
    """Return a checkpoint's transformers in one of GPU_FORMATS; errors as for `load_models`."""
    numbers = card_numbers(dtype, _CARD, load_config(checkpoint))
    model, _ = load_dual_ar(
        checkpoint, dtype=numbers.dtype, form=numbers.form, fast_form=numbers.fast_form
    )
    return _keep_wide(model)


def emulate_preset(shape: Preset, dtype: str, *, seed: int = 0) -> DualAR:
    """Return a preset's transformers with random weights in one of GPU_FORMATS."""
    numbers = card_numbers(dtype, _CARD, shape.config)
    with torch.device("meta"):
        model = DualAR(shape.config, special_ids(shape))
    cpu = torch.device("cpu")
    assign_weights(model, dict(lm_weights(shape, device=cpu, dtype=numbers.dtype, seed=seed)))
    model.finalize(numbers.form, numbers.fast_form)
    return _keep_wide(model)


def _keep_wide(model: DualAR) -> DualAR:
    """Keep the numbers of 8 bits in float32 as well: converting them takes most of a product."""
    for module in model.modules():
        for linear in vars(module).values():
            if isinstance(linear, ScaledLinear):
                wide = linear.weight.numbers.float()
                linear.multiply = partial(multiply_scaled, wide=wide)
    return model
