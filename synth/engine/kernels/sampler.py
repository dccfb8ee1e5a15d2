"""Draw a frame's tokens from logits in one kernel a draw: top-k, top-p, temperature and noise.

Equal logits stand in the order of their rows, lowest first. Everything else is as in
`synth.engine.model.sampling`; a candidate on the edge of a cut to the last bits of float32 may
fall on either side of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from synth.contract import MAX_TOP_K
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.sampling import (
    MIN_TEMPERATURE,
    RAS_WINDOW,
    SECOND_TEMPERATURE,
    SECOND_TOP_P,
)

_MOST_ROWS = 1 << 16  # of logits: a row's number is 16 bits of the key it is sorted by
_MIN_TEMPERATURE = tl.constexpr(MIN_TEMPERATURE)
_SECOND_TEMPERATURE = tl.constexpr(SECOND_TEMPERATURE)
_SECOND_TOP_P = tl.constexpr(SECOND_TOP_P)
_WINDOW = tl.constexpr(RAS_WINDOW)


@dataclass(frozen=True, slots=True, eq=False)
class DrawInputs:
    """Hold what all draws of a frame have in common, on the device.

    `temperature`, `top_p` float32 [B]; `top_k` int64 [B]; `seed` and `frame` int64 [B], the frames
    made so far, with `noise_offset` int64 [B] those that the noise is counted from; `max_top_k` is
    the number of candidates kept, MAX_TOP_K at most.
    """

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    seed: Tensor
    frame: Tensor
    noise_offset: Tensor
    max_top_k: int

    @classmethod
    def of(cls, state: DecodeState) -> DrawInputs:
        """Return what a state's next frame is drawn with."""
        return cls(
            state.temperature,
            state.top_p,
            state.top_k,
            state.seed,
            state.frame,
            state.noise_offset,
            state.max_top_k,
        )


@dataclass(frozen=True, slots=True, eq=False)
class TokenRows:
    """Say what the slow AR's logits stand for: row r is token `ids[r]`, ids int64 [R].

    Semantic tokens lie from `semantic_begin` to `semantic_end`, both included.
    """

    ids: Tensor
    semantic_begin: int
    semantic_end: int


@dataclass(frozen=True, slots=True, eq=False)
class TokenDraw:
    """Hold a frame's tokens, int64 [B] each, and bool [B] whether all logits were finite.

    `first` and `second` are the two draws, `token` the one chosen, `code` its semantic code; for
    one that is not semantic, the nearest. Of logits that are not finite, any token may come.
    """

    first: Tensor
    second: Tensor
    token: Tensor
    code: Tensor
    finite: Tensor


def draw_tokens(
    logits: Tensor,
    inputs: DrawInputs,
    rows: TokenRows,
    window: Tensor,
    chosen: Tensor,
) -> TokenDraw:
    """Draw the slow AR's token and the one that replaces a repetition.

    Args:
        logits: [B, R], R at most 65,536, side by side.
        window: int64 [B, RAS_WINDOW], the newest tokens last. The token enters it where `chosen`
            bool [B] is True. A first frame neither looks at it nor enters it.
    """
    batch, num_rows = logits.shape
    assert rows.ids.shape == (num_rows,) and chosen.shape == (batch,)
    assert window.shape == (batch, RAS_WINDOW) and window.is_contiguous()
    tokens = torch.empty(4, batch, device=logits.device, dtype=torch.int64)
    finite = torch.empty(batch, device=logits.device, dtype=torch.bool)
    draw_tokens_kernel[(batch,)](
        logits, inputs.temperature, inputs.top_p, inputs.top_k, inputs.seed, inputs.frame,
        inputs.noise_offset, rows.ids, window, chosen, tokens, finite, rows.semantic_begin,
        rows.semantic_end, _row_stride(logits, inputs), **_sizes(logits, inputs.max_top_k),
    )  # fmt: skip
    first, second, token, code = tokens.unbind()
    return TokenDraw(first, second, token, code, finite)


def draw_codes(logits: Tensor, inputs: DrawInputs, index: int, finite: Tensor) -> Tensor:
    """Return one codebook's codes, int64 [B], from logits [B, codebook_size].

    Args:
        index: of the draw, SLOW_DRAWS for the first codebook behind the semantic one.
        finite: bool [B]; becomes False where a logit is not finite.
    """
    codes = torch.empty(logits.shape[0], device=logits.device, dtype=torch.int64)
    draw_codes_kernel[(logits.shape[0],)](
        logits, inputs.temperature, inputs.top_p, inputs.top_k, inputs.seed, inputs.frame,
        inputs.noise_offset, codes, finite, index, _row_stride(logits, inputs),
        **_sizes(logits, inputs.max_top_k),
    )  # fmt: skip
    return codes


def _row_stride(logits: Tensor, inputs: DrawInputs) -> int:
    """Return how far apart rows of logits are."""
    per_stream = (inputs.temperature, inputs.top_p, inputs.top_k)
    counted = (inputs.seed, inputs.frame, inputs.noise_offset)
    for each in (*per_stream, *counted):
        assert each.is_contiguous() and len(each) == len(logits)
    assert logits.stride(1) == 1
    # A single row's stride may be any number; a round one lets the compiler read it in wide pieces.
    return logits.stride(0) if len(logits) > 1 else logits.shape[1]


def _sizes(logits: Tensor, max_top_k: int) -> dict[str, int]:
    """Return the kernels' sizes: a row is sorted as a power of two and the tail behind it."""
    num_rows = logits.shape[1]
    assert 0 < num_rows <= _MOST_ROWS and 0 < max_top_k <= MAX_TOP_K
    keep = max(triton.next_power_of_2(max_top_k), 16)
    main = max(triton.next_power_of_2(num_rows // 2 + 1), keep)  # the largest within the row
    tail = max(num_rows - main, 0)
    return {
        "NUM_ROWS": num_rows,
        "MAIN": main,
        "TAIL": max(triton.next_power_of_2(tail), keep) if tail else 0,
        "KEEP": keep,
        "CANDIDATES": min(max_top_k, num_rows),
        "num_warps": 8 if main > 1024 else 4,
    }


@triton.jit
def _load(logits, row, NUM_ROWS: tl.constexpr):
    """Return float32 logits, minus infinity behind the last, and whether all are finite."""
    inside = row < NUM_ROWS
    x = tl.load(logits + row, mask=inside, other=float("-inf")).to(tl.float32)
    finite = (tl.abs(x) < float("inf")) | (row >= NUM_ROWS)
    return x, tl.min(finite.to(tl.int32), axis=0)


@triton.jit
def _keys(x, row, NUM_ROWS: tl.constexpr, WIDE: tl.constexpr):
    """Return integers in the order of x and, among equal ones, against that of their rows.

    The upper half are the bits of x, the lower are 65,535 less the row; all are different. 16 bits
    hold a bfloat16, so that 32 will do.
    """
    x = tl.where(x == 0.0, 0.0, x)  # one zero, not two
    bits = x.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # in the order of the numbers also below zero
    if WIDE:
        keys = (bits.to(tl.int64) << 32) | (0xFFFF - row).to(tl.int64)
        lowest = tl.full((1,), -0x7FFFFFFFFFFFFFFF, tl.int64)
    else:
        keys = (bits & -0x10000) | (0xFFFF - row)
        lowest = tl.full((1,), -0x7FFFFFFF, tl.int32)
    return tl.where(row < NUM_ROWS, keys, lowest)


@triton.jit
def _values(keys, WIDE: tl.constexpr):
    """Return the numbers and the rows that keys were made of."""
    row = 0xFFFF - (keys & 0xFFFF).to(tl.int32)
    if WIDE:  # noqa: SIM108 - a conditional expression would compile both halves
        bits = (keys >> 32).to(tl.int32)
    else:
        bits = tl.where(keys < 0, keys | 0xFFFF, keys & -0x10000)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True), row


@triton.jit
def _best(
    logits, NUM_ROWS: tl.constexpr, MAIN: tl.constexpr, TAIL: tl.constexpr, KEEP: tl.constexpr,
    CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Return the best logits, their rows and cumulative probabilities, and if all were finite."""
    WIDE: tl.constexpr = logits.dtype.element_ty != tl.bfloat16
    row = tl.arange(0, MAIN)
    x, finite = _load(logits, row, NUM_ROWS)
    top = tl.max(x, axis=0)
    keys = tl.topk(_keys(x, row, NUM_ROWS, WIDE), KEEP)
    if TAIL:
        tail_row = MAIN + tl.arange(0, TAIL)
        tail, tail_finite = _load(logits, tail_row, NUM_ROWS)
        finite = tl.minimum(finite, tail_finite)
        top = tl.maximum(top, tl.max(tail, axis=0))
        both = tl.join(keys, tl.topk(_keys(tail, tail_row, NUM_ROWS, WIDE), KEEP))
        keys = tl.topk(tl.reshape(both, [2 * KEEP]), KEEP)
        total = tl.sum(tl.exp(x - top), axis=0) + tl.sum(tl.exp(tail - top), axis=0)
    else:
        total = tl.sum(tl.exp(x - top), axis=0)
    values, rows = _values(keys, WIDE)
    shares = tl.exp(values - top) / total
    shares = tl.where(tl.arange(0, KEEP) < CANDIDATES, shares, 0.0)
    # Padding has the largest row numbers there are; nothing may be looked up at those.
    return values, tl.minimum(rows, NUM_ROWS - 1), tl.cumsum(shares, axis=0), finite


@triton.jit
def _scatter(x):
    """Scatter 32 bits over 32 bits as `synth.engine.model.sampling` does."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def _noise(seed, frame, offset, stream, draw):
    """Return the two words that numbers of one draw of a stream's frame are keyed to, uint32."""
    key, count = tl.load(seed + stream), tl.load(frame + stream) + tl.load(offset + stream)
    one, other, _, _ = tl.philox_impl(
        count.to(tl.uint32), (count >> 32).to(tl.uint32), draw.to(tl.uint32),
        tl.zeros_like(draw).to(tl.uint32), key.to(tl.uint32), (key >> 32).to(tl.uint32),
    )  # fmt: skip
    return one, other


@triton.jit
def _share(top_p):
    """Return what candidates may sum up to: with 1 none is cut, though a sum of floats passes 1."""
    return tl.where(top_p < 1, top_p, 3.0)


@triton.jit
def _winner(
    values, cumulative, ids, word, other_word, temperature, top_p, top_k, KEEP: tl.constexpr,
    CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Return the id that wins a race with the noise of two words."""
    rank = tl.arange(0, KEEP)
    kept = (rank == 0) | ((rank < top_k) & (cumulative <= top_p) & (rank < CANDIDATES))
    # Rounded as torch does: a temperature near 0 makes a last bit a large number.
    scaled = tl.div_rn(values, tl.zeros_like(values) + tl.maximum(temperature, _MIN_TEMPERATURE))
    scaled = tl.where(kept, scaled, float("-inf"))
    weights = tl.exp(scaled - tl.max(scaled, axis=0))
    weights = weights / tl.sum(weights, axis=0)
    mixed = _scatter(_scatter(ids.to(tl.uint32) + word) ^ other_word)
    uniform = ((mixed >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07  # 2 ** -23
    scores = weights / -tl.log(uniform)
    scores = tl.where(kept & (scores == scores), scores, -1.0)  # NaN has no place in an order
    winner = tl.argmax(scores, axis=0)
    return tl.sum(tl.where(rank == winner, ids, 0), axis=0)


@triton.jit(do_not_specialize=["semantic_begin", "semantic_end"])
def draw_tokens_kernel(
    logits, temperature, top_p, top_k, seed, frame, offset, ids, window, chosen, tokens_out,
    finite_out, semantic_begin, semantic_end, logits_stride, NUM_ROWS: tl.constexpr,
    MAIN: tl.constexpr, TAIL: tl.constexpr, KEEP: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Draw a stream's two tokens, choose one and let it enter the window."""
    stream = tl.program_id(0).to(tl.int64)
    batch = tl.num_programs(0)
    values, rows, cumulative, finite = _best(
        logits + stream * logits_stride, NUM_ROWS, MAIN, TAIL, KEEP, CANDIDATES
    )
    tokens = tl.load(ids + rows)
    one, other = _noise(seed, frame, offset, stream, tl.full((), 0, tl.int32))
    most = tl.load(top_k + stream)
    warmth, share = tl.load(temperature + stream), _share(tl.load(top_p + stream))
    first = _winner(values, cumulative, tokens, one, other, warmth, share, most, KEEP, CANDIDATES)
    one, other = _noise(seed, frame, offset, stream, tl.full((), 1, tl.int32))
    second = _winner(
        values, cumulative, tokens, one, other, _SECOND_TEMPERATURE, _SECOND_TOP_P, most, KEEP,
        CANDIDATES,
    )  # fmt: skip
    at = tl.arange(0, 16)
    past = window + stream * _WINDOW + at
    seen = tl.load(past, mask=at < _WINDOW, other=-1)
    following = tl.load(past + 1, mask=at < _WINDOW - 1, other=0)
    is_later = tl.load(frame + stream) > 0  # the first frame has nothing to do with the window
    repeated = (tl.max((seen == first).to(tl.int32), axis=0) > 0) & is_later
    repeated &= (first >= semantic_begin) & (first <= semantic_end)
    token = tl.where(repeated, second, first)
    tl.debug_barrier()  # all have read the window before any of them writes it
    rolled = tl.where(at == _WINDOW - 1, token, following)
    tl.store(past, rolled, mask=(at < _WINDOW) & tl.load(chosen + stream) & is_later)
    code = tl.minimum(tl.maximum(token, semantic_begin), semantic_end) - semantic_begin
    tl.store(tokens_out + stream, first)
    tl.store(tokens_out + batch + stream, second)
    tl.store(tokens_out + 2 * batch + stream, token)
    tl.store(tokens_out + 3 * batch + stream, code)
    tl.store(finite_out + stream, finite > 0)


@triton.jit(do_not_specialize=["index"])
def draw_codes_kernel(
    logits, temperature, top_p, top_k, seed, frame, offset, codes_out, finite_out, index,
    logits_stride, NUM_ROWS: tl.constexpr, MAIN: tl.constexpr, TAIL: tl.constexpr,
    KEEP: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Draw a stream's code; its row is its id."""
    stream = tl.program_id(0).to(tl.int64)
    values, rows, cumulative, finite = _best(
        logits + stream * logits_stride, NUM_ROWS, MAIN, TAIL, KEEP, CANDIDATES
    )
    one, other = _noise(seed, frame, offset, stream, tl.full((), 0, tl.int32) + index)
    most = tl.load(top_k + stream)
    warmth, share = tl.load(temperature + stream), _share(tl.load(top_p + stream))
    code = _winner(
        values, cumulative, rows.to(tl.int64), one, other, warmth, share, most, KEEP, CANDIDATES
    )
    tl.store(codes_out + stream, code)
    tl.store(finite_out + stream, tl.load(finite_out + stream) & (finite > 0))
