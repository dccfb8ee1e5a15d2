"""Test passes of prompts by kernels: their attention, and what they leave in a cache."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.bench.stepping import random_prompt
from lab.golden.models import Loaded
from lab.gpu_check.torch_forms import prompt_attention_torch
from synth.engine.kernels.attention import prompt_attention
from synth.engine.kernels.frame import fill_prompts
from synth.engine.model.dual_ar import Span
from synth.engine.model.kv_cache import KVCache
from synth.engine.model.layers import PASS_ALIGNMENT, rope_table
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw

# Parts of prompts in a pass: slot, start and length; a copied prefix lies before some of them.
PARTS = ((2, 70, 20), (0, 0, 9), (1, 33, 16))


def place_parts(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a pass's positions and slots, with a block of nothing at its end."""
    positions, slots = torch.full((80,), -1), torch.zeros(80, dtype=torch.int64)
    row = 0
    for slot, start, length in PARTS:
        positions[row : row + length] = torch.arange(start, start + length)
        slots[row : row + length] = slot
        row = -(-(row + length) // PASS_ALIGNMENT) * PASS_ALIGNMENT
    return positions.to(device), slots.to(device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "head_dim", "normed"), [((4, 2), 16, True), ((6, 2), 10, False), ((4, 4), 32, True)]
)
def test_prompts_attend_to_their_own_slot_up_to_their_own_positions(
    generator: torch.Generator,
    dtype: torch.dtype,
    heads: tuple[int, int],
    head_dim: int,
    normed: bool,
) -> None:
    positions, slots = place_parts(generator.device)
    qkv = draw(generator, 80, (heads[0] + 2 * heads[1]) * head_dim, dtype=dtype)
    both = draw(generator, 2, 3, heads[1], 100, head_dim, dtype=dtype)
    for slot, start, _ in PARTS:  # behind what is there before, whatever lies there is not read
        both[:, slot, :, start:] = float("nan")
    rope = rope_table(torch.arange(100, device=generator.device), head_dim, 10_000.0)
    weight = draw(generator, sum(heads), head_dim, dtype=dtype) if normed else None
    ours, theirs = both.clone(), both.clone()

    found, expected = (
        attend(qkv, rope, both[0], both[1], positions, slots=slots, weight=weight, eps=1e-6)
        for attend, both in ((prompt_attention, ours), (prompt_attention_torch, theirs))
    )

    there = positions >= 0
    assert_close(found[there], expected[there])
    assert bool(found.isfinite().all())
    assert_close(ours.nan_to_num(9.0), theirs.nan_to_num(9.0))


def test_a_pass_of_kernels_fills_the_cache_as_the_model_does(
    loaded: Loaded, device: torch.device
) -> None:
    model = loaded.model
    whole, filled = (
        KVCache.allocate(
            model.config.text_config,
            num_slots=3, num_positions=100, device=model.device, dtype=model.dtype,
        )
        for _ in range(2)
    )  # fmt: skip
    prompts = [random_prompt(model, start + length, seed=slot) for slot, start, length in PARTS]
    positions, slots = place_parts(device)
    columns = torch.zeros(80, prompts[0].shape[0], dtype=torch.int64)
    row = 0
    with torch.inference_mode():
        for (slot, start, length), prompt in zip(PARTS, prompts, strict=True):
            model.slow.prefill(prompt.T, [Span(slot, 0, start + length)], whole)
            if start:  # as behind a kept prefix
                model.slow.prefill(prompt[:, :start].T, [Span(slot, 0, start)], filled)
            columns[row : row + length] = prompt[:, start:].T
            row = -(-(row + length) // PASS_ALIGNMENT) * PASS_ALIGNMENT

        fill_prompts(model, columns, positions, slots, filled)

    assert_close(filled.keys, whole.keys)
    assert_close(filled.values, whole.values)
