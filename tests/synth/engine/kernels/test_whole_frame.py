"""Frames made of kernels alone are the engine's: each one leaves what the next one reads."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="kernels are written in triton, which is not installed")

from synth.contract import Sampling
from synth.engine.decode import decode_step
from synth.engine.decode_state import DecodeState
from synth.engine.dual_ar import DualAR
from synth.engine.golden.case import GoldenFolder
from synth.engine.golden.models import Loaded
from synth.engine.kernels.embed import embed_columns
from synth.engine.kernels.frame_attention import step_frame
from synth.engine.kernels.layer import Rows, can_step, finish, join_heads, last_norm
from synth.engine.kernels.sampler import DrawInputs, TokenRows, draw_codes, draw_tokens
from synth.engine.kernels.step_attention import step_attention
from synth.engine.noise import SLOW_DRAWS
from synth.engine.prefill import SlotPrompt, prefill
from tests.synth.engine.kernels.quick_interpreter import hasten

NUM_FRAMES = 2


@pytest.fixture(autouse=True)
def quick_interpreter(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    if device.type == "cpu":
        hasten(monkeypatch)


@pytest.fixture
def state(loaded: Loaded, golden: GoldenFolder) -> DecodeState:
    """Return three slots behind prompts of different lengths, with their first frames made."""
    arrays = golden.tensors("greedy")
    state = DecodeState.allocate(loaded.model, num_slots=3, max_positions=256)
    for slot, case in enumerate(("no_voice", "one_voice", "two_voices")):
        prompt = arrays[f"{case}.prompt"]
        sampling = Sampling(seed=slot, temperature=0.9, top_p=0.95, top_k=20, max_frames=20)
        state.assign(slot, sampling, prompt_positions=prompt.shape[1])
        prefill(loaded.model, state, [SlotPrompt(slot, prompt)])
    return state


def _hidden(model: DualAR, state: DecodeState) -> Tensor:
    """Return the slow AR's states [B, width] behind the newest frame."""
    slow, cache = model.slow, state.cache
    tables = (slow.embeddings.weight, slow.codebook_embeddings.weight)
    begin, end = model.special.semantic_begin, model.special.semantic_end
    rows = Rows(embed_columns(state.columns, *tables, semantic_begin=begin, semantic_end=end))
    for index, block in enumerate(slow.blocks):
        layer = (cache.keys[index], cache.values[index])
        rows, joined = join_heads(block, rows)
        norm, eps = block.attention.qk_norm, block.norm_eps
        mixed = step_attention(joined, slow.rope, *layer, state.position, weight=norm, eps=eps)
        rows = finish(block, rows, mixed)
    return last_norm(rows, slow.norm.weight, slow.norm_eps)


def _codes_logits(model: DualAR, state: DecodeState, x: Tensor, position: int, span: int) -> Tensor:
    """Return a codebook's logits behind the rows [B * span, width] of a frame's places."""
    fast, cache, rows = model.fast, state.fast_cache, Rows(x)
    for index, block in enumerate(fast.blocks):
        layer = (cache.keys[index], cache.values[index])
        rows, joined = join_heads(block, rows)
        rows = finish(block, rows, step_frame(joined, fast.rope, *layer, position, span=span))
    return fast.output(last_norm(rows, fast.norm.weight, fast.norm_eps)[span - 1 :: span])


def _frame(model: DualAR, state: DecodeState) -> tuple[Tensor, Tensor]:
    """Make one frame: columns [B, 1 + K], and whether each slot's logits were finite."""
    slow, fast, special = model.slow, model.fast, model.special
    hidden = _hidden(model, state)
    inputs = DrawInputs(
        state.temperature, state.top_p, state.top_k, state.words, state.frame, state.max_top_k
    )
    rows = TokenRows(slow.head_tokens, special.semantic_begin, special.semantic_end)
    drawn = draw_tokens(slow.logits(hidden), inputs, rows, state.window, state.active)
    columns, code = [drawn.token, drawn.code], drawn.code
    x = torch.stack([hidden, fast.embeddings(code)], dim=1).flatten(0, 1)
    for codebook in range(1, fast.num_codebooks):
        place, span = (0, 2) if codebook == 1 else (codebook, 1)
        logits = _codes_logits(model, state, x, place, span)
        code = draw_codes(logits, inputs, SLOW_DRAWS + codebook - 1, drawn.finite)
        x = fast.embeddings(code)
        columns.append(code)
    return torch.stack(columns, dim=1), drawn.finite


def test_frames_of_kernels_alone_are_those_of_the_engine(
    loaded: Loaded, state: DecodeState
) -> None:
    model = loaded.model
    assert all(can_step(block) for block in (*model.slow.blocks, *model.fast.blocks))
    other = copy.deepcopy(state)

    for _ in range(NUM_FRAMES):
        columns, finite = _frame(model, other)
        expected = decode_step(model, state)

        assert bool(expected.made.all()) and bool(finite.all())
        assert torch.equal(columns, expected.columns)
        assert torch.equal(other.window, state.window)
        other.columns.copy_(columns)
        other.position.add_(1)
        other.frame.add_(1)
    live = int(other.position.min())
    torch.testing.assert_close(
        other.cache.keys[:, :, :, :live], state.cache.keys[:, :, :, :live], atol=1e-4, rtol=1e-4
    )
