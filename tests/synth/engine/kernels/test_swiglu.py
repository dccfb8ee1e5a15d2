"""A feed-forward is gated by a kernel as the layers do it."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from synth.engine.kernels.swiglu import swiglu, swiglu_torch
from synth.engine.model.layers import FeedForward
from synth.engine.model.linear import LinearForm, PlainLinear
from synth.engine.presets.shapes import preset
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 2), (3, 2 * 1500), (2, 2, 2 * 96)])
def test_halves_are_gated_as_the_torch_form_does(
    generator: torch.Generator, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    joined = draw(generator, *shape, dtype=dtype, scale=3.0)

    assert_close(swiglu(joined), swiglu_torch(joined))


def test_far_negative_and_far_positive_gates_give_zero_and_themselves(device: torch.device) -> None:
    gate = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4], device=device)
    joined = torch.cat([gate, torch.ones(5, device=device)])[None]

    found = swiglu(joined)[0]

    assert_close(found, torch.tensor([0.0, 0.0, 0.0, 100.0, 1e4], device=device))


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_form_is_the_gate_of_the_layers(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    config = preset("tiny").config.text_config
    width, inner = config.dim, config.intermediate_size
    layer = FeedForward(config).to(generator.device, dtype)
    layer.finalize(LinearForm.PLAIN)
    del layer.w2
    layer.w2 = PlainLinear(torch.eye(inner, device=generator.device, dtype=dtype), None)
    x = draw(generator, 3, width, dtype=dtype)
    assert layer.w13 is not None

    assert torch.equal(swiglu_torch(layer.w13(x)), layer(x))
