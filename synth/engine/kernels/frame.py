"""Make a whole frame of every stream with kernels: the same step as `decode.step_tensors`.

What is not a kernel here are the products of many rows, two gathers a frame and the write-back.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.kernels.attention import split_for
from synth.engine.kernels.embed import embed_columns
from synth.engine.kernels.frame_attention import frame_attention, step_frame
from synth.engine.kernels.gemv import MAX_ROWS, gemv
from synth.engine.kernels.layer import Rows, can_step, finish, join_heads, last_norm, project
from synth.engine.kernels.sampler import DrawInputs, TokenRows, draw_codes, draw_tokens
from synth.engine.kernels.step_attention import step_attention
from synth.engine.model.attention import SPLIT_POSITIONS
from synth.engine.model.decode import StepOutput, advance
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.noise import SLOW_DRAWS


def can_make_frames(model: DualAR) -> bool:
    """Say whether all layers of a finalized model are in a form that the kernels read."""
    return all(can_step(block) for block in (*model.slow.blocks, *model.fast.blocks))


def make_kernel_frame(model: DualAR, state: DecodeState) -> StepOutput:
    """Advance every active slot by one whole frame; see `decode.step_tensors`.

    Attention reads each slot's position on the device, so that no length is given: one captured
    graph serves all of them.
    """
    slow, special = model.slow, model.special
    hidden = _slow_step(model, state)
    state.position.add_(state.active)
    chosen = state.active.clone()
    draws = DrawInputs(
        state.temperature, state.top_p, state.top_k, state.words, state.frame, state.max_top_k
    )
    tokens = TokenRows(slow.head_tokens, special.semantic_begin, special.semantic_end)
    logits = _multiply(hidden, slow.head)
    drawn = draw_tokens(logits, draws, tokens, state.window, chosen)
    codes = _codes(model, state, hidden, drawn.code, draws, drawn.finite)
    columns = torch.stack([drawn.token, *codes], dim=1)
    ended = advance(model, state, columns, chosen, drawn.finite, is_first=False)
    is_speech = chosen & drawn.finite & ~ended
    return StepOutput(state.columns.clone(), chosen, is_speech, drawn.first, drawn.second)


def _slow_step(model: DualAR, state: DecodeState) -> Tensor:
    """Return the slow AR's normalised states [B, width] behind the newest frame."""
    slow, cache = model.slow, state.cache
    position = state.position.clamp(max=state.max_positions - 1)
    tables = (slow.embeddings.weight, slow.codebook_embeddings.weight)
    begin, end = model.special.semantic_begin, model.special.semantic_end
    rows = Rows(embed_columns(state.columns, *tables, semantic_begin=begin, semantic_end=end))
    # Of strict slots the splits must be the same however many run beside them.
    split = SPLIT_POSITIONS if state.strict else split_for(state.num_slots, cache.keys.shape[2])
    for index, block in enumerate(slow.blocks):
        layer = (cache.keys[index], cache.values[index])
        rows, joined = join_heads(block, rows)
        norm, eps = block.attention.qk_norm, block.norm_eps
        mixed = step_attention(
            joined, slow.rope, *layer, position, weight=norm, eps=eps, split=split
        )
        rows = finish(block, rows, mixed)
    return last_norm(rows, slow.norm.weight, slow.norm_eps)


def _codes(
    model: DualAR,
    state: DecodeState,
    hidden: Tensor,
    code: Tensor,
    draws: DrawInputs,
    finite: Tensor,
) -> list[Tensor]:
    """Return a frame's codes, int64 [B] each; `finite` becomes False where a logit is not."""
    fast, codes = model.fast, [code]
    start = hidden if fast.project_in is None else fast.project_in(hidden)
    x = torch.stack([start, fast.embeddings(code)], dim=1).flatten(0, 1)
    for codebook in range(1, fast.num_codebooks):
        first = codebook == 1  # its pass has two positions
        logits = _code_logits(model, state, x, 0 if first else codebook, 2 if first else 1)
        code = draw_codes(logits, draws, SLOW_DRAWS + codebook - 1, finite)
        codes.append(code)
        x = fast.embeddings(code)
    return codes


def _code_logits(model: DualAR, state: DecodeState, x: Tensor, position: int, span: int) -> Tensor:
    """Return the logits [B, C] behind the last of each stream's rows, of x [B * span, width]."""
    fast, cache, rows = model.fast, state.fast_cache, Rows(x)
    for index, block in enumerate(fast.blocks):
        layer = (cache.keys[index], cache.values[index])
        if block.attention.qk_norm is None:
            rows, joined = join_heads(block, rows)
            mixed = step_frame(joined, fast.rope, *layer, position, span=span)
        else:
            rows, queries = project(block, rows, fast.rope, *layer, position, span=span)
            mixed = frame_attention(queries, *layer, position, span=span)
        rows = finish(block, rows, mixed)
    states = last_norm(rows, fast.norm.weight, fast.norm_eps)
    return _multiply(states[span - 1 :: span], fast.output)


def _multiply(x: Tensor, head: object) -> Tensor:
    """Return x @ weight.T of a head in its plain form, [B, N]."""
    weight = getattr(head, "weight", None)
    assert isinstance(weight, Tensor)
    return gemv(x, weight) if x.shape[0] <= MAX_ROWS else F.linear(x, weight)
