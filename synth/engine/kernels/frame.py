"""Make a whole frame of every stream with kernels: the same step as `decode.step_tensors`.

What is not a kernel here are the products of many rows, two gathers a frame and the write-back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.kernels.attention import split_for, step_attention
from synth.engine.kernels.frame_attention import step_frame
from synth.engine.kernels.gemv import FEW_ROWS, MAX_ROWS, gemv, gemv_parts
from synth.engine.kernels.rowwise import add_rms_norm, embed_columns, rms_norm, swiglu
from synth.engine.kernels.sampler import DrawInputs, TokenRows, draw_codes, draw_tokens
from synth.engine.model.decode import StepOutput, advance
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.layers import SPLIT_POSITIONS
from synth.engine.model.sampling import SLOW_DRAWS

if TYPE_CHECKING:
    from synth.engine.model.layers import Block


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
    logits = _multiply(hidden, *_matrix(slow.head))
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
        rows, joined = join_heads(block, rows)
        norm, eps = block.attention.qk_norm, block.norm_eps
        mixed = step_frame(joined, fast.rope, *layer, position, weight=norm, eps=eps, span=span)
        rows = finish(block, rows, mixed)
    states = last_norm(rows, fast.norm.weight, fast.norm_eps)
    return _multiply(states[span - 1 :: span], *_matrix(fast.output))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Hold what goes from layer to layer: `x` [N, width], and what is still to be added to it.

    `pending` is [N, width] like x, or float32 parts [P, N, width] as `gemv_parts` leaves them.
    """

    x: Tensor
    pending: Tensor | None = None


def can_step(block: Block) -> bool:
    """Say whether a layer is finalized in a form that the kernels read."""
    attention, feed_forward = block.attention, block.feed_forward
    matrices = (attention.wqkv, attention.wo, feed_forward.w13, feed_forward.w2)
    weights = [getattr(matrix, "weight", None) for matrix in matrices]
    plain = all(isinstance(weight, Tensor) and weight.is_contiguous() for weight in weights)
    return plain and attention.head_dim % 2 == 0 and attention.q_norm is None


def join_heads(block: Block, rows: Rows) -> tuple[Rows, Tensor]:
    """Return the rows, and the joined projection of their norm, [N, (H + 2 * KV) * D]."""
    weight, bias = _matrix(block.attention.wqkv)
    norm, eps = block.attention_norm.weight, block.norm_eps
    if rows.x.shape[0] <= FEW_ROWS:
        return rows, gemv(rows.x, weight, norm=norm, eps=eps, bias=bias)
    rows, normed = _normalise(rows, norm, eps)
    return rows, _multiply(normed, weight, bias)


def finish(block: Block, rows: Rows, mixed: Tensor) -> Rows:
    """Add the attention's output [N, H * D] and the feed-forward to the rows of `join_heads`."""
    (out, out_bias), (down, _) = _matrix(block.attention.wo), _matrix(block.feed_forward.w2)
    joined, _ = _matrix(block.feed_forward.w13)
    norm, eps = block.ffn_norm.weight, block.norm_eps
    if rows.x.shape[0] <= FEW_ROWS:
        x = gemv(mixed, out, bias=out_bias, residual=rows.x)
        inner = gemv(x, joined, norm=norm, eps=eps, gated=True)
        return Rows(gemv(inner, down, residual=x))
    rows, normed = _normalise(Rows(rows.x, _leave(mixed, out, out_bias)), norm, eps)
    if normed.shape[0] <= MAX_ROWS:
        inner = gemv(normed, joined, gated=True)
    else:
        inner = swiglu(F.linear(normed, joined))
    return Rows(rows.x, _leave(inner, down, None))


def last_norm(rows: Rows, weight: Tensor, eps: float) -> Tensor:
    """Return the normalised rows behind the last layer, [N, width]."""
    return _normalise(rows, weight, eps)[1]


def _normalise(rows: Rows, weight: Tensor, eps: float) -> tuple[Rows, Tensor]:
    """Add what is pending; return the sum, and the sum normalised."""
    if rows.pending is None:
        return rows, rms_norm(rows.x, weight, eps)
    added, normed = add_rms_norm(rows.pending, rows.x, weight, eps)
    return Rows(added), normed


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return gemv(x, weight, bias=bias) if x.shape[0] <= MAX_ROWS else F.linear(x, weight, bias)


def _leave(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply into what `Rows.pending` may be."""
    if x.shape[0] <= MAX_ROWS and bias is None:
        return gemv_parts(x, weight)
    return _multiply(x, weight, bias)


def _matrix(linear: object) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of a product in its plain form, as `can_step` has found it."""
    weight, bias = getattr(linear, "weight", None), getattr(linear, "bias", None)
    assert isinstance(weight, Tensor) and (bias is None or isinstance(bias, Tensor))
    return weight, bias
