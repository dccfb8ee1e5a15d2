"""Specify the engine's kernels in plain torch; every kernel gives what the form of its name gives.

Arguments are those of the kernel.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.kernels import multiprocessors
from synth.engine.kernels.convolution import SnakeNumbers, Taps, to_operands
from synth.engine.kernels.gemv import choose_tile
from synth.engine.kernels.sampler import DrawInputs, TokenDraw, TokenRows
from synth.engine.model.layers import SPLIT_POSITIONS
from synth.engine.model.linear import ScaledRows, multiply_scaled, rounds_inputs
from synth.engine.model.sampling import (
    SECOND_TEMPERATURE,
    SECOND_TOP_P,
    Candidates,
    CounterFrame,
    Cut,
    draw,
    draw_words,
    probabilities,
    replace_repeated,
)


def rms_norm_torch(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], None, eps) * weight


def add_rms_norm_torch(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    if x.dim() == 3:
        total = x[0]
        for part in x[1:]:
            total = total + part
        x = total.to(residual.dtype)
    added = x + residual
    return added, rms_norm_torch(added, weight, eps)


def swiglu_torch(joined: Tensor) -> Tensor:
    gate, up = joined.chunk(2, dim=-1)
    return F.silu(gate) * up


def embed_columns_torch(
    columns: Tensor, text: Tensor, audio: Tensor, *, semantic_begin: int, semantic_end: int
) -> Tensor:
    tokens, codes = columns[:, 0], columns[:, 1:]
    starts = torch.arange(codes.shape[1], device=codes.device) * (audio.shape[0] // codes.shape[1])
    plain = F.embedding(tokens, text)
    scaled = (plain + F.embedding(codes + starts, audio).sum(dim=-2)) / math.sqrt(columns.shape[1])
    is_semantic = (tokens >= semantic_begin) & (tokens <= semantic_end)
    return torch.where(is_semantic[:, None], scaled, plain)


def snake_torch(
    x: Tensor,
    alpha: Tensor,
    inverse: Tensor,
    *,
    bias: Tensor | None = None,
    left: int = 0,
    context: Tensor | None = None,
    in_place: bool = False,
) -> Tensor:
    added = x if bias is None else x + bias.view(-1, 1)
    value = added.float()
    bump = (value * alpha.view(-1, 1).float()).sin()
    result = torch.addcmul(value, bump * bump, inverse.view(-1, 1)).to(x.dtype)
    if in_place:
        return x.copy_(result)
    return F.pad(result, (left, 0)) if context is None else torch.cat([context, result], dim=-1)


def add_branch_torch(x: Tensor, branch: Tensor, bias: Tensor) -> Tensor:
    return x + (branch + bias.view(-1, 1))


def gemv_torch(
    x: Tensor,
    weight: Tensor | ScaledRows,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    if norm is not None:
        x = rms_norm_torch(x, norm, eps)
    if isinstance(weight, ScaledRows):
        out = multiply_scaled(x, weight, bias)
    else:
        total = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
        out = total.to(x.dtype)
    if gated:
        out = swiglu_torch(out)
    return out if residual is None else out + residual


def gemv_parts_torch(x: Tensor, weight: Tensor | ScaledRows) -> Tensor:
    rows, num_in = x.shape
    scaled = isinstance(weight, ScaledRows)
    tile = choose_tile(
        rows, weight.shape[0], num_in, processors=multiprocessors(x.device), scaled=scaled
    )
    blocks = -(-num_in // tile.block_k)
    length = -(-blocks // tile.splits) * tile.block_k
    ranges = [slice(split * length, (split + 1) * length) for split in range(tile.splits)]
    numbers = weight.numbers if isinstance(weight, ScaledRows) else weight
    rounded = None
    if isinstance(weight, ScaledRows) and rounds_inputs(weight, rows):
        rounded = ScaledRows.of(x, weight.numbers.dtype)
        x = rounded.numbers
    parts = torch.stack([x[:, part].float() @ numbers[:, part].float().T for part in ranges])
    if isinstance(weight, ScaledRows):
        parts *= weight.scale
    return parts if rounded is None else parts * rounded.scale.unsqueeze(1)


def write_heads_torch(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor | int,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    span: int = 1,
) -> Tensor:
    """Return the queries [B * span, H, D]; write keys and values into one layer's cache.

    A row of qkv [B * span, (H + 2 * KV) * D] holds a position's query heads, then its key heads,
    then its value heads. Rows come stream by stream, `span` consecutive positions of each.

    Args:
        rope: the table of all positions, float32 [S or more, D / 2, 2], of cos and sin.
        keys, values: [B, KV, S, D]; written in place.
        position: of each stream's first row: int64 [B], or one number for all. A position beyond
            S - 1 is taken as S - 1.
        weight: of the norm of every query and key head, [H + KV, D], multiplied before the cast;
            None means no norm.
    """
    streams, kv_heads, positions, head_dim = keys.shape
    heads = qkv.view(streams, span, -1, head_dim)
    first = torch.as_tensor(position, device=qkv.device).expand(streams)
    at = first[:, None] + torch.arange(span, device=qkv.device)
    at = at.clamp(max=positions - 1)
    queries, k, v = _turned_torch(heads, rope[at], kv_heads, weight, eps)
    stream = torch.arange(streams, device=qkv.device)[:, None]
    keys[stream, :, at] = k.to(keys.dtype)
    values[stream, :, at] = v.to(values.dtype)
    return queries.flatten(0, 1)


def _turned_torch(
    heads: Tensor, table: Tensor, kv_heads: int, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of heads [..., H + 2 * KV, D]; table [..., D / 2, 2]."""
    rotated = heads.shape[-2] - kv_heads
    both, v = heads[..., :rotated, :], heads[..., rotated:, :]
    if weight is not None:
        wide = F.rms_norm(both.float(), both.shape[-1:], None, eps) * weight.float()
        both = wide.to(heads.dtype)
    cos, sin = table.unsqueeze(-3).unbind(-1)  # [..., 1, D / 2]
    even, odd = both.float().view(*both.shape[:-1], -1, 2).unbind(-1)
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    both = turned.flatten(-2).to(heads.dtype)
    return both[..., : rotated - kv_heads, :], both[..., rotated - kv_heads :, :], v


def step_attention_torch(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    *,
    weight: Tensor | None = None,
    eps: float = 0.0,
    split: int = SPLIT_POSITIONS,
) -> Tensor:
    q = write_heads_torch(qkv, rope, keys, values, position, weight=weight, eps=eps)
    return decode_attention_torch(q, keys, values, position, split=split)


def decode_attention_torch(
    q: Tensor, keys: Tensor, values: Tensor, position: Tensor, *, split: int = SPLIT_POSITIONS
) -> Tensor:
    """Attend with each stream's query up to and with its position, all in float32 to one cast.

    The positions are written already; other arguments as for `step_attention`.
    """
    batch, heads, head_dim = q.shape
    length = keys.shape[2]
    last = position.clamp(max=length - 1)
    seen = torch.arange(length, device=q.device) <= last[:, None]
    grouped = (q.float() * head_dim**-0.5).view(batch, keys.shape[1], -1, head_dim)
    scores = grouped @ keys.float().transpose(-1, -2)
    scores = scores.masked_fill(~seen[:, None, None], float("-inf"))
    kept = values.float().masked_fill(~seen[:, None, :, None], 0.0)
    tops, sums, mixed = [], [], []
    for start in range(0, length, split):
        part = scores[..., start : start + split]
        top = part.amax(-1, keepdim=True)
        shares = (part - top.clamp(min=torch.finfo(torch.float32).min)).exp()
        tops.append(top)
        sums.append(shares.sum(-1, keepdim=True))
        mixed.append(shares @ kept[:, :, start : start + split])
    peak = torch.stack(tops).amax(0)
    factors = [(top - peak).exp() for top in tops]
    total = sum(m * f for m, f in zip(mixed, factors, strict=True))
    weight = sum(s * f for s, f in zip(sums, factors, strict=True))
    out: Tensor = total / weight
    return out.to(q.dtype).view(batch, heads * head_dim)


def write_prompts_torch(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    *,
    slots: Tensor,
    weight: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Return the queries [N, H, D] besides; those of nothing are at position 0."""
    heads = qkv.view(len(qkv), -1, keys.shape[3])
    table = rope[positions.clamp(min=0)]
    queries, k, v = _turned_torch(heads, table, keys.shape[1], weight, eps)
    there = positions >= 0
    keys[slots[there], :, positions[there]] = k[there].to(keys.dtype)
    values[slots[there], :, positions[there]] = v[there].to(values.dtype)
    return queries


def prompt_attention_torch(
    qkv: Tensor,
    rope: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    *,
    slots: Tensor,
    weight: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Return zeros for what is nothing."""
    queries = write_prompts_torch(
        qkv, rope, keys, values, positions, slots=slots, weight=weight, eps=eps
    )
    out = torch.zeros_like(queries.flatten(1))
    for slot in sorted(set(slots.tolist())):
        own = ((slots == slot) & (positions >= 0)).nonzero().flatten()
        upto = keys[slot : slot + 1].expand(len(own), -1, -1, -1)
        seen = values[slot : slot + 1].expand(len(own), -1, -1, -1)
        out[own] = decode_attention_torch(
            queries[own], upto, seen, positions[own], split=keys.shape[2]
        )
    return out


def frame_attention_torch(
    q: Tensor, keys: Tensor, values: Tensor, position: int, *, span: int = 1
) -> Tensor:
    """Attend with each query [B * span, H, D] over its frame's positions up to its own.

    Scores, shares and the result are rounded to q's dtype one after the other, as the weights were
    trained; arguments as for `step_frame`.
    """
    rows, heads, head_dim = q.shape
    streams, kv_heads, _, _ = keys.shape
    grouped = q.view(streams, span, kv_heads, -1, head_dim)
    mixed = torch.empty_like(grouped)
    for nth in range(span):
        upto = position + nth + 1
        wide = grouped[:, nth].to(keys.dtype)
        scores = (wide @ keys[:, :, :upto].transpose(-1, -2)).to(q.dtype) * head_dim**-0.5
        mixed[:, nth] = scores.softmax(-1).to(keys.dtype) @ values[:, :, :upto]
    return mixed.view(rows, heads * head_dim)


def step_frame_torch(
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
    queries = write_heads_torch(
        qkv, rope, keys, values, position, weight=weight, eps=eps, span=span
    )
    return frame_attention_torch(queries, keys, values, position, span=span)


def draw_tokens_torch(
    logits: Tensor,
    inputs: DrawInputs,
    rows: TokenRows,
    window: Tensor,
    chosen: Tensor,
) -> TokenDraw:
    best = ordered_candidates(logits, inputs.max_top_k)
    ids = rows.ids[best.rows]
    cuts = (
        Cut.of(inputs.temperature, inputs.top_p, inputs.top_k, inputs.max_top_k),
        Cut.of(
            torch.full_like(inputs.temperature, SECOND_TEMPERATURE),
            torch.full_like(inputs.top_p, SECOND_TOP_P),
            inputs.top_k,
            inputs.max_top_k,
        ),
    )
    noise = _noise(inputs, 2)
    ranks = [draw(probabilities(best, cut), noise.uniform(i, ids)) for i, cut in enumerate(cuts)]
    first, second = (ids.gather(1, rank).squeeze(1) for rank in ranks)
    is_later = inputs.frame > 0
    is_semantic = (first >= rows.semantic_begin) & (first <= rows.semantic_end)
    token = replace_repeated(first, second, is_semantic & is_later, window)
    rolled = torch.cat([window[:, 1:], token.unsqueeze(1)], dim=1)
    window.copy_(torch.where((chosen & is_later).unsqueeze(1), rolled, window))
    code = token.clamp(rows.semantic_begin, rows.semantic_end) - rows.semantic_begin
    return TokenDraw(first, second, token, code, logits.isfinite().all(-1))


def draw_codes_torch(logits: Tensor, inputs: DrawInputs, index: int, finite: Tensor) -> Tensor:
    best = ordered_candidates(logits, inputs.max_top_k)
    cut = Cut.of(inputs.temperature, inputs.top_p, inputs.top_k, inputs.max_top_k)
    rank = draw(probabilities(best, cut), _noise(inputs, index + 1).uniform(index, best.rows))
    finite.logical_and_(logits.isfinite().all(-1))
    return best.rows.gather(1, rank).squeeze(1)


def ordered_candidates(logits: Tensor, max_top_k: int) -> Candidates:
    """Return the best candidates as `best_candidates`, equal ones in the order of their rows.

    Which of equal logits `topk` takes, and in which order, it leaves open.
    """
    wide = logits.float()
    best, rows = wide.sort(dim=-1, descending=True, stable=True)
    kept = slice(min(max_top_k, wide.shape[-1]))
    shares = wide.softmax(-1).gather(-1, rows[:, kept])
    return Candidates(best[:, kept], rows[:, kept], shares.cumsum(-1))


def _noise(inputs: DrawInputs, num_draws: int) -> CounterFrame:
    frames = inputs.frame + inputs.noise_offset
    return CounterFrame(draw_words(inputs.seed, frames, num_draws))


def convolve_torch(
    x: Tensor,
    taps: Taps,
    *,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    snake: SnakeNumbers | None = None,
    active: Tensor | None = None,
) -> None:
    ins = x.shape[2]
    weight = taps.weight[:, : taps.outs].view(taps.taps, ins, taps.outs).permute(2, 1, 0)
    columns, numbers = x.float().transpose(1, 2), weight.float()
    # Both hold at most ten bits, so that TF32, which cuDNN may take here, changes nothing.
    total = F.conv1d(columns, numbers, taps.bias, dilation=taps.dilation).transpose(1, 2)
    total = total if residual is None else total + residual
    if out is not None:
        out.copy_(total)
    if active is not None:
        value = total.reshape(active.shape)
        if snake is not None:
            value = value + (value * snake.alpha).sin().square() * snake.inverse
        active.copy_(to_operands(value, active.dtype))
