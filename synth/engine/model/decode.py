"""Decode autoregressively: prompts in, codec codes out, one frame of every stream at a time."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.model.decode_state import ENDED, FAILED, RUNNING, DecodeState
from synth.engine.model.dual_ar import KERNELS, DualAR
from synth.engine.model.sampling import (
    SECOND_TEMPERATURE,
    SECOND_TOP_P,
    SLOW_DRAWS,
    CounterFrame,
    Cut,
    FrameNoise,
    best_candidates,
    draw,
    draw_words,
    probabilities,
    replace_repeated,
)


@dataclass(frozen=True, slots=True, eq=False)
class StepOutput:
    """Hold one frame of every slot, on the device.

    `columns` int64 [B, 1 + K]: the token and the codes; the old ones where a slot was not active.
    `made` bool [B]: the slot was active, its column is new. `is_speech` bool [B]: it is new and is
    neither an end frame nor one of a failed slot. `first_draw` and `second_draw` int64 [B]: the two
    tokens among which repetition-aware sampling chose.
    """

    columns: Tensor
    made: Tensor
    is_speech: Tensor
    first_draw: Tensor
    second_draw: Tensor


@torch.inference_mode()
def decode_step(model: DualAR, state: DecodeState) -> StepOutput:
    """Advance every active slot by one whole frame, attending over the live positions only.

    `state` may be a bucket of a larger one: the work is that of its slots alone.
    """
    output = step_tensors(model, state, length=state.live_length())
    state.note_step()
    return output


@torch.inference_mode()
def step_tensors(model: DualAR, state: DecodeState, *, length: int) -> StepOutput:
    """Compute a decode step: slow AR, both draws, fast AR, write-back, end flags.

    What goes in is a slot's newest frame or, before its first one, the last column of its prompt.
    A first frame neither looks at the repetition window nor enters it.

    No branch depends on a tensor's value, nothing waits for the device and shapes depend on
    `length` alone: with one `length` this can be captured as a graph, and whoever replays it calls
    `state.note_step()`. A slot that is not active goes through the arithmetic and keeps its state.

    Args:
        length: positions to attend over, above every live one; kernels read it on the device.
    """
    if state.suits_own_code:
        if model.has_kernels:
            kernels: Callable[..., StepOutput] = importlib.import_module(KERNELS).make_kernel_frame
            return kernels(model, state)
        if model.native is not None:
            return model.native.make_frame(model, state)
    position = state.position.clamp(max=state.max_positions - 1)
    hidden = model.slow.step(
        state.columns, position, state.cache, length=length, in_splits=state.strict
    )
    state.position.add_(state.active)
    chosen, is_later = state.active.clone(), state.frame > 0
    frames = state.frame + state.noise_offset
    if state.noise is None:
        noise: FrameNoise = CounterFrame(draw_words(state.seed, frames, model.num_draws))
    else:
        noise = state.noise.frame(state.seed, frames, model.num_draws)
    cut = Cut.of(state.temperature, state.top_p, state.top_k, state.max_top_k)
    logits = model.slow.logits(hidden)
    first, second = _draw_tokens(model, state, logits, noise, cut)
    may_repeat = model.slow.is_semantic(first) & is_later
    token = replace_repeated(first, second, may_repeat, state.window)
    codes, fast_is_finite = _draw_codes(model, state, hidden, token, noise, cut)
    finite = _are_finite([logits.sum(-1)]) & fast_is_finite
    columns = torch.cat([token.unsqueeze(1), codes], dim=1)
    roll_window(state, columns, chosen)
    return advance(model, state, columns, chosen, finite, (first, second))


def _draw_tokens(
    model: DualAR, state: DecodeState, logits: Tensor, noise: FrameNoise, cut: Cut
) -> tuple[Tensor, Tensor]:
    """Draw the slow token and the one that may replace it, int64 [B] each, of logits [B, R]."""
    candidates = best_candidates(logits, state.max_top_k)
    tokens = model.slow.head_tokens[candidates.rows]
    other_cut = Cut.of(
        torch.full_like(state.temperature, SECOND_TEMPERATURE),
        torch.full_like(state.top_p, SECOND_TOP_P),
        state.top_k,
        state.max_top_k,
    )
    weights = (probabilities(candidates, one) for one in (cut, other_cut))
    ranks = [draw(w, noise.uniform(i, tokens)) for i, w in enumerate(weights)]
    one, other = (tokens.gather(1, rank).squeeze(1) for rank in ranks)
    return one, other


def _draw_codes(
    model: DualAR, state: DecodeState, hidden: Tensor, token: Tensor, noise: FrameNoise, cut: Cut
) -> tuple[Tensor, Tensor]:
    """Return a frame's codes int64 [B, K] behind its token, and whether all logits were finite."""
    fast, cache = model.fast, state.fast_cache
    code = (token - model.special.semantic_begin).clamp(0, fast.codebook_size - 1)
    codes, sums = [code], []
    for codebook in range(1, fast.num_codebooks):
        is_begun = codebook > 1
        logits = fast.next(code, codebook, cache) if is_begun else fast.first(hidden, code, cache)
        sums.append(logits.sum(-1))
        best = best_candidates(logits, state.max_top_k)
        rank = draw(probabilities(best, cut), noise.uniform(SLOW_DRAWS + codebook - 1, best.rows))
        code = best.rows.gather(1, rank).squeeze(1)
        codes.append(code)
    return torch.stack(codes, dim=1), _are_finite(sums)


def _are_finite(sums: list[Tensor]) -> Tensor:
    """Say for each stream, bool [B], whether all of the numbers in its sums, [B] each, are finite.

    A sum is finite only if every number in it is; looking at the numbers takes five times as long.
    """
    return torch.stack(sums).isfinite().all(0)


def roll_window(state: DecodeState, columns: Tensor, chosen: Tensor) -> None:
    """Enter the tokens of new columns [B, 1 + K] into the chosen slots' repetition windows.

    Those of first frames stay out; to be called before `advance`.
    """
    rolled = torch.cat([state.window[:, 1:], columns[:, :1]], dim=1)
    enters = (chosen & (state.frame > 0)).unsqueeze(1)
    state.window.copy_(torch.where(enters, rolled, state.window))


def advance(
    model: DualAR,
    state: DecodeState,
    columns: Tensor,
    chosen: Tensor,
    finite: Tensor,
    drawn: tuple[Tensor, Tensor],
) -> StepOutput:
    """Store new columns [B, 1 + K] of the chosen slots and stop those that end, fail or are full.

    Args:
        finite: bool [B], whether all logits of a slot were.
        drawn: the two tokens among which each slot's was chosen, int64 [B] each.
    """
    is_end = columns[:, 0] == model.special.im_end
    stops = is_end & (state.frame > 0) if state.like_reference else is_end
    state.columns.copy_(torch.where(chosen.unsqueeze(1), columns, state.columns))
    rows = torch.arange(state.num_slots, device=columns.device) * state.history.shape[1]
    history = state.history.view(-1, columns.shape[1])
    history.index_copy_(0, rows + state.frame, columns.to(history.dtype))
    state.frame.add_(chosen)
    full = state.frame >= state.frame_limit
    status = torch.where(full, state.limit_status, RUNNING)
    status = torch.where(stops, ENDED, status)
    status = torch.where(finite, status, FAILED)
    state.status.copy_(torch.where(chosen, status, state.status))
    state.active.logical_and_(state.status == RUNNING)
    return StepOutput(state.columns.clone(), chosen, chosen & finite & ~is_end, *drawn)
