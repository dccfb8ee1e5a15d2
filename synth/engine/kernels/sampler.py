"""Draw a frame's tokens from logits in one kernel a draw: top-k, top-p, temperature and noise.

Equal logits stand in the order of their rows, lowest first. Everything else is as in
`synth.engine.model.sampling`; a candidate on the edge of a cut to the last bits of float32 may
fall on either side of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from synth.contract import MAX_TOP_K
from synth.engine.kernels.sampler_kernels import draw_codes_kernel, draw_tokens_kernel
from synth.engine.model.noise import CounterFrame
from synth.engine.model.sampling import (
    RAS_WINDOW,
    SECOND_TEMPERATURE,
    SECOND_TOP_P,
    Candidates,
    Cut,
    draw,
    probabilities,
    replace_repeated,
)

_MOST_ROWS = 1 << 16  # of logits: a row's number is 16 bits of the key it is sorted by


@dataclass(frozen=True, slots=True, eq=False)
class DrawInputs:
    """Hold what all draws of a frame have in common, on the device.

    `temperature`, `top_p` float32 [B]; `top_k` int64 [B]; `words` int64 [B, F, draws, 2] the noise
    of frames, draws and words side by side; `frame` int64 [B], which of them is drawn now;
    `max_top_k` is the number of candidates kept, MAX_TOP_K at most.
    """

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    words: Tensor
    frame: Tensor
    max_top_k: int


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
    window: Tensor | None = None,
    chosen: Tensor | None = None,
) -> TokenDraw:
    """Draw the slow AR's token and the one that replaces a repetition.

    Args:
        logits: [B, R], R at most 65,536, side by side.
        window: int64 [B, RAS_WINDOW], the newest tokens last; without it, as for a first frame,
            nothing is a repetition. The token enters it where `chosen` bool [B] is True.
    """
    batch, num_rows = logits.shape
    assert rows.ids.shape == (num_rows,) and (window is None) == (chosen is None)
    assert window is None or (window.shape == (batch, RAS_WINDOW) and window.is_contiguous())
    tokens = torch.empty(4, batch, device=logits.device, dtype=torch.int64)
    finite = torch.empty(batch, device=logits.device, dtype=torch.bool)
    draw_tokens_kernel[(batch,)](
        logits,
        inputs.temperature,
        inputs.top_p,
        inputs.top_k,
        inputs.words,
        inputs.frame,
        rows.ids,
        window,
        chosen,
        tokens,
        finite,
        rows.semantic_begin,
        rows.semantic_end,
        *_strides(logits, inputs),
        **_sizes(logits, inputs.max_top_k),
    )
    first, second, token, code = tokens.unbind()
    return TokenDraw(first, second, token, code, finite)


def draw_tokens_torch(
    logits: Tensor,
    inputs: DrawInputs,
    rows: TokenRows,
    window: Tensor | None = None,
    chosen: Tensor | None = None,
) -> TokenDraw:
    """Specify `draw_tokens`."""
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
    noise = _noise(inputs)
    ranks = [draw(probabilities(best, cut), noise.uniform(i, ids)) for i, cut in enumerate(cuts)]
    first, second = (ids.gather(1, rank).squeeze(1) for rank in ranks)
    token = first
    if window is not None and chosen is not None:
        is_semantic = (first >= rows.semantic_begin) & (first <= rows.semantic_end)
        token = replace_repeated(first, second, is_semantic, window)
        rolled = torch.cat([window[:, 1:], token.unsqueeze(1)], dim=1)
        window.copy_(torch.where(chosen.unsqueeze(1), rolled, window))
    code = token.clamp(rows.semantic_begin, rows.semantic_end) - rows.semantic_begin
    return TokenDraw(first, second, token, code, logits.isfinite().all(-1))


def draw_codes(logits: Tensor, inputs: DrawInputs, index: int, finite: Tensor) -> Tensor:
    """Return one codebook's codes, int64 [B], from logits [B, codebook_size].

    Args:
        index: of the draw, SLOW_DRAWS for the first codebook behind the semantic one.
        finite: bool [B]; becomes False where a logit is not finite.
    """
    codes = torch.empty(logits.shape[0], device=logits.device, dtype=torch.int64)
    draw_codes_kernel[(logits.shape[0],)](
        logits,
        inputs.temperature,
        inputs.top_p,
        inputs.top_k,
        inputs.words,
        inputs.frame,
        codes,
        finite,
        index,
        *_strides(logits, inputs),
        **_sizes(logits, inputs.max_top_k),
    )
    return codes


def draw_codes_torch(logits: Tensor, inputs: DrawInputs, index: int, finite: Tensor) -> Tensor:
    """Specify `draw_codes`."""
    best = ordered_candidates(logits, inputs.max_top_k)
    cut = Cut.of(inputs.temperature, inputs.top_p, inputs.top_k, inputs.max_top_k)
    rank = draw(probabilities(best, cut), _noise(inputs).uniform(index, best.rows))
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


def _noise(inputs: DrawInputs) -> CounterFrame:
    streams = torch.arange(inputs.frame.shape[0], device=inputs.frame.device)
    return CounterFrame(inputs.words[streams, inputs.frame])


def _strides(logits: Tensor, inputs: DrawInputs) -> tuple[int, int, int]:
    """Return how far apart rows of logits, streams of words and frames of words are."""
    words = inputs.words
    per_stream = (inputs.temperature, inputs.top_p, inputs.top_k, inputs.frame)
    assert all(each.is_contiguous() and len(each) == len(logits) for each in per_stream)
    assert logits.stride(1) == 1 and words.stride(3) == 1 and words.stride(2) == 2
    # A single row's stride may be any number; a round one lets the compiler read it in wide pieces.
    row = logits.stride(0) if len(logits) > 1 else logits.shape[1]
    return row, words.stride(0), words.stride(1)


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
