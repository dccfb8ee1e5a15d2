"""Make a whole frame of every stream with kernels: the same step as `decode.step_tensors`.

What is not a kernel here are the products of many rows, two gathers a frame and the write-back.
Along the codebooks of a frame a query attends to a handful of keys, at a place the host knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from synth.engine.kernels import multiprocessors
from synth.engine.kernels.attention import (
    prompt_attention,
    split_for,
    step_attention,
    write_prompts,
)
from synth.engine.kernels.gemv import FEW_ROWS, MAX_ROWS, gemv, gemv_parts
from synth.engine.kernels.rowwise import add_rms_norm, embed_columns, rms_norm, swiglu
from synth.engine.kernels.sampler import DrawInputs, TokenRows, draw_codes, draw_tokens
from synth.engine.model.decode import StepOutput, advance
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR, FastAR, SlowAR
from synth.engine.model.kv_cache import FrameCache, KVCache
from synth.engine.model.layers import SPLIT_POSITIONS, Block
from synth.engine.model.linear import ScaledRows
from synth.engine.model.sampling import SLOW_DRAWS

_MOST_POSITIONS = 32  # of a frame; all of them are in one program's hands


def step_frame(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: int,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    span: int = 1,
) -> Tensor:
    """Normalise and rotate heads, write keys and values and attend up to each query's position.

    A program does not wait for what another one writes: it computes the new keys it attends to by
    itself.

    Args:
        qkv: [B * span, (H + 2 * KV) * D], a position's query heads, key heads and value heads, side
            by side; D even.
        rope: the table of a frame's positions, float32 [K, D / 2, 2], of cos and sin.
        keys, values: one layer's cache [B, KV, K, D] in qkv's dtype or float32, H a multiple of KV,
            with the same strides; D side by side. Written from `position` on; nothing behind a
            query's position is read.
        position: of each stream's first query, the same for all.
        weight: of the norm of every query and key head, [H + KV, D], multiplied before the cast;
            None means no norm.
        span: 1 or 2, consecutive positions of each stream.

    Returns:
        [B * span, H * D] in qkv's dtype.
    """
    rows, width = qkv.shape
    streams, kv_heads, positions, head_dim = keys.shape
    heads = width // head_dim - 2 * kv_heads
    assert rows == streams * span and span in (1, 2) and position + span <= positions
    assert width == (heads + 2 * kv_heads) * head_dim and heads % kv_heads == 0
    assert keys.stride() == values.stride() and keys.stride(-1) == qkv.stride(-1) == 1
    assert rope.is_contiguous() and positions <= _MOST_POSITIONS and head_dim % 2 == 0
    assert weight is None or weight.is_contiguous()
    out = torch.empty(rows, heads * head_dim, device=qkv.device, dtype=qkv.dtype)
    _step_frame[(heads, rows)](
        qkv, rope, weight, keys, values, out, position, head_dim**-0.5, eps, qkv.stride(0),
        *keys.stride()[:3], GROUP=heads // kv_heads, HEADS=heads, KV_HEADS=kv_heads,
        HEAD_DIM=head_dim, WIDTH=triton.next_power_of_2(head_dim), SPAN=span,
        POSITIONS=triton.next_power_of_2(positions), num_warps=1,
    )  # fmt: skip
    return out


@triton.jit
def _attend(query, k, v, seen, scale, dtype: tl.constexpr):
    """Attend with a query [D] over k and v [N, D], all float32, rounded to a dtype at each step."""
    scores = tl.sum(query[None, :] * k, axis=1).to(dtype).to(tl.float32)
    scores = (scores * scale).to(dtype).to(tl.float32)
    scores = tl.where(seen, scores, float("-inf"))
    shares = tl.exp(scores - tl.max(scores, axis=0))
    shares = (shares / tl.sum(shares, axis=0)).to(dtype).to(tl.float32)
    return tl.sum(shares[:, None] * v, axis=0).to(dtype)


@triton.jit
def _rotate_head(heads, norm, rope, dim, in_head, eps, HEAD_DIM: tl.constexpr, dtype: tl.constexpr):
    """Return a head [D] with its norm, if there is one, and adjacent pairs turned; rounded."""
    x = tl.load(heads + dim, mask=in_head, other=0.0).to(tl.float32)
    other = tl.load(heads + (dim ^ 1), mask=in_head, other=0.0).to(tl.float32)
    if norm is not None:
        scale = tl.rsqrt(tl.sum(x * x, axis=0) / HEAD_DIM + eps)
        factor = tl.load(norm + dim, mask=in_head, other=0.0).to(tl.float32)
        other_factor = tl.load(norm + (dim ^ 1), mask=in_head, other=0.0).to(tl.float32)
        x = (x * scale * factor).to(dtype).to(tl.float32)
        other = (other * scale * other_factor).to(dtype).to(tl.float32)
    cos = tl.load(rope + (dim & -2), mask=in_head, other=0.0)
    sin = tl.load(rope + (dim | 1), mask=in_head, other=0.0)
    return (x * cos + tl.where(dim % 2 == 0, -other, other) * sin).to(dtype)


@triton.jit(do_not_specialize=["position"])
def _step_frame(
    qkv, rope, weight, keys, values, out, position, scale, eps, qkv_row, cache_stream, cache_head,
    cache_position, GROUP: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Attend with one head of one row per program; the first of a group writes for all of it."""
    head = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    kv_head, mine = head // GROUP, (row % SPAN).to(tl.int32)
    dtype = out.dtype.element_ty
    cached = keys.dtype.element_ty
    dim, at = tl.arange(0, WIDTH), tl.arange(0, POSITIONS)
    in_head = dim < HEAD_DIM
    cache = (row // SPAN) * cache_stream + kv_head * cache_head + dim
    before = (at < position)[:, None] & in_head[None, :]
    k = tl.load(keys + cache[None, :] + at[:, None] * cache_position, mask=before, other=0.0)
    v = tl.load(values + cache[None, :] + at[:, None] * cache_position, mask=before, other=0.0)
    if weight is not None:
        norm = weight + head * HEAD_DIM
        key_norm = weight + (HEADS + kv_head) * HEAD_DIM
    else:
        norm = None
        key_norm = None
    for nth in tl.static_range(SPAN):
        source = qkv + (row - mine + nth) * qkv_row
        table = rope + (position + nth) * HEAD_DIM
        key_at = source + (HEADS + kv_head) * HEAD_DIM
        value_at = source + (HEADS + KV_HEADS + kv_head) * HEAD_DIM
        key = _rotate_head(key_at, key_norm, table, dim, in_head, eps, HEAD_DIM, dtype).to(cached)
        value = tl.load(value_at + dim, mask=in_head, other=0.0).to(cached)
        new = (at == position + nth)[:, None]
        k, v = tl.where(new, key[None, :], k), tl.where(new, value[None, :], v)
        if (head % GROUP == 0) & (mine == nth):
            tl.store(keys + cache + (position + nth) * cache_position, key, mask=in_head)
            tl.store(values + cache + (position + nth) * cache_position, value, mask=in_head)
    query_at = qkv + row * qkv_row + head * HEAD_DIM
    table = rope + (position + mine) * HEAD_DIM
    query = _rotate_head(query_at, norm, table, dim, in_head, eps, HEAD_DIM, dtype)
    k, v = k.to(tl.float32), v.to(tl.float32)
    mixed = _attend(query.to(tl.float32), k, v, at <= position + mine, scale, dtype)
    tl.store(out + (row * HEADS + head) * HEAD_DIM + dim, mixed, mask=in_head)


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
    draws = DrawInputs.of(state)
    tokens = TokenRows(slow.head_tokens, special.semantic_begin, special.semantic_end)
    logits = multiply(hidden, *_matrix(slow.head))[:, : len(slow.head_tokens)]
    drawn = draw_tokens(logits, draws, tokens, state.window, chosen)
    codes = _codes(model, state, hidden, drawn.code, draws, drawn.finite)
    columns = torch.stack([drawn.token, *codes], dim=1)
    both = (drawn.first, drawn.second)
    return advance(model, state, columns, chosen, drawn.finite, both)


def _slow_step(model: DualAR, state: DecodeState) -> Tensor:
    """Return the slow AR's normalised states [B, width] behind the newest frame."""
    cache = state.cache
    position = state.position.clamp(max=state.max_positions - 1)
    # Of strict slots the splits must be the same however many run beside them.
    split = SPLIT_POSITIONS
    if not state.strict:
        kv_heads, processors = cache.keys.shape[2], multiprocessors(cache.keys.device)
        split = split_for(state.num_slots, kv_heads, processors)
    attend = partial(step_attention, split=split)
    return run_layers(model.slow, _embed(model, state.columns), cache, position, attend)


def fill_prompts(
    model: DualAR, columns: Tensor, positions: Tensor, slots: Tensor, cache: KVCache
) -> None:
    """Run columns of prompts through the slow AR and fill the cache; nothing else is kept.

    Args:
        columns: int64 [N, 1 + K]; positions and slots: as `prompt_attention` takes them.
    """
    rows, last = Rows(_embed(model, columns)), model.slow.blocks[-1]
    for block, keys, values in zip(model.slow.blocks, cache.keys, cache.values, strict=True):
        rows, joined = join_heads(block, rows)
        norm, eps = block.attention.qk_norm, block.norm_eps
        given = (joined, model.slow.rope, keys, values, positions)
        if block is last:  # behind its keys and values there is nothing that anybody reads
            write_prompts(*given, slots=slots, weight=norm, eps=eps)
        else:
            mixed = prompt_attention(*given, slots=slots, weight=norm, eps=eps)
            rows = finish(block, rows, mixed)


def _embed(model: DualAR, columns: Tensor) -> Tensor:
    tables = (model.slow.embeddings.weight, model.slow.codebook_embeddings.weight)
    begin, end = model.special.semantic_begin, model.special.semantic_end
    return embed_columns(columns, *tables, semantic_begin=begin, semantic_end=end)


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
        position, span = (0, 2) if codebook == 1 else (codebook, 1)
        states = run_layers(fast, x, state.fast_cache, position, partial(step_frame, span=span))
        logits = multiply(states[span - 1 :: span], *_matrix(fast.output))
        code = draw_codes(logits, draws, SLOW_DRAWS + codebook - 1, finite)
        codes.append(code)
        if codebook + 1 < fast.num_codebooks:
            x = fast.embeddings(code)
    return codes


def run_layers(
    ar: SlowAR | FastAR,
    x: Tensor,
    cache: KVCache | FrameCache,
    position: Tensor | int,
    attend: Callable[..., Tensor],
) -> Tensor:
    """Return the normalised states behind all layers of x [N, width], and write to the cache.

    Args:
        position: as `attend` takes it, which is `step_attention` or `step_frame`.
    """
    rows = Rows(x)
    for block, keys, values in zip(ar.blocks, cache.keys, cache.values, strict=True):
        rows, joined = join_heads(block, rows)
        norm, eps = block.attention.qk_norm, block.norm_eps
        mixed = attend(joined, ar.rope, keys, values, position, weight=norm, eps=eps)
        rows = finish(block, rows, mixed)
    return _normalise(rows, ar.norm.weight, ar.norm_eps)[1]


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
    kinds = (Tensor, ScaledRows)
    plain = all(isinstance(weight, kinds) and weight.is_contiguous() for weight in weights)
    return plain and attention.head_dim % 2 == 0 and attention.q_norm is None


def join_heads(block: Block, rows: Rows) -> tuple[Rows, Tensor]:
    """Return the rows, and the joined projection of their norm, [N, (H + 2 * KV) * D]."""
    weight, bias = _matrix(block.attention.wqkv)
    norm, eps = block.attention_norm.weight, block.norm_eps
    if rows.x.shape[0] <= FEW_ROWS:
        return rows, gemv(rows.x, weight, norm=norm, eps=eps, bias=bias)
    rows, normed = _normalise(rows, norm, eps)
    return rows, multiply(normed, weight, bias)


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
        inner = swiglu(multiply(normed, joined, None))
    return Rows(rows.x, _leave(inner, down, None))


def _normalise(rows: Rows, weight: Tensor, eps: float) -> tuple[Rows, Tensor]:
    """Add what is pending; return the sum, and the sum normalised."""
    if rows.pending is None:
        return rows, rms_norm(rows.x, weight, eps)
    added, normed = add_rms_norm(rows.pending, rows.x, weight, eps)
    return Rows(added), normed


def multiply(x: Tensor, weight: Tensor | ScaledRows, bias: Tensor | None) -> Tensor:
    """Return x [N, in] @ weight.T with the bias; many rows of a matrix in 16 bits by a library."""
    if x.shape[0] > MAX_ROWS and isinstance(weight, Tensor):
        return F.linear(x, weight, bias)
    return gemv(x, weight, bias=bias)


def _leave(x: Tensor, weight: Tensor | ScaledRows, bias: Tensor | None) -> Tensor:
    """Multiply into what `Rows.pending` may be."""
    if x.shape[0] <= MAX_ROWS and bias is None:
        return gemv_parts(x, weight)
    return multiply(x, weight, bias)


def _matrix(linear: object) -> tuple[Tensor | ScaledRows, Tensor | None]:
    """Return weight and bias of a product in a form that `can_step` has found."""
    weight, bias = getattr(linear, "weight", None), getattr(linear, "bias", None)
    assert isinstance(weight, (Tensor, ScaledRows)) and (bias is None or isinstance(bias, Tensor))
    return weight, bias
