"""Choose tokens from logits: top-p and top-k first, then temperature, then one race per draw."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from synth.contract import MAX_TOP_K, SEED, TEMPERATURE, TOP_P, Sampling
from synth.engine.errors import InvalidSpecError

# Goes into the keys of takes. Raise it, and record the new version's draws, when the same logits,
# seed and frame can give other tokens in any sampler: here, the kernels' torch form, Triton's, C's.
SAMPLER_VERSION = 2
SECOND_TEMPERATURE = 1.0  # the draw that replaces a repeated token has its own two values
SECOND_TOP_P = 0.9
RAS_WINDOW = 10
MIN_TEMPERATURE = 1e-5  # what the logits are divided by at least
DEFAULT_MAX_TOP_K = MAX_TOP_K
_NEVER, _ALWAYS = -1.0, 3.0  # limits that every sum of probabilities exceeds, and none


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Hold the best k logits of each stream, best first.

    `logits` float32 [B, k]; `rows` int64 [B, k], their places in the full row; `cumulative`
    float32 [B, k], the untempered probability of the candidates so far, of the full row's.
    """

    logits: Tensor
    rows: Tensor
    cumulative: Tensor


def check_sampling(sampling: Sampling, *, max_top_k: int, num_rows: int, lenient: bool) -> None:
    """Raise InvalidSpecError for values out of range, or a top_k that cannot be honoured.

    Args:
        max_top_k: candidates each draw keeps; at `num_rows` or more any top_k will do.
        lenient: accept top_k 0 (acts as 1) and max_frames 0 (until the context is full).
    """
    low = 0 if lenient else 1
    for ok, sentence in (
        (
            TOP_P.holds(sampling.top_p),
            f"top_p is {sampling.top_p}; it must be {TOP_P.words}.",
        ),
        (
            TEMPERATURE.holds(sampling.temperature),
            f"temperature is {sampling.temperature}; it must be {TEMPERATURE.words}.",
        ),
        (sampling.top_k >= low, f"top_k is {sampling.top_k}; it must be {low} or more."),
        (
            sampling.top_k <= max_top_k or max_top_k >= num_rows,
            f"top_k is {sampling.top_k}; this engine allows at most {max_top_k}.",
        ),
        (
            sampling.max_frames >= low,
            f"max_frames is {sampling.max_frames}; it must be {low} or more.",
        ),
        (SEED.holds(sampling.seed), f"seed is {sampling.seed}; it must be {SEED.words}."),
    ):
        if not ok:
            raise InvalidSpecError(sentence)


def best_candidates(logits: Tensor, max_top_k: int) -> Candidates:
    """Return the best candidates of logits [B, V]; no sort of the row, all in float32."""
    wide = logits.float()
    best, rows = wide.topk(min(max_top_k, wide.shape[-1]), dim=-1)
    shares = wide.softmax(-1).gather(-1, rows)  # quicker than the best ones against a logsumexp
    return Candidates(best, rows, shares.cumsum(-1))


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Hold what decides which candidates stay and how even their chances are.

    `most` float32 [B, k]: a candidate goes when the probability up to and with it is above this;
    `temperature` float32 [B, 1].
    """

    most: Tensor
    temperature: Tensor

    @classmethod
    def of(cls, temperature: Tensor, top_p: Tensor, top_k: Tensor, num_candidates: int) -> Cut:
        """Return the cut of parameters [B] each: the same for all draws of a frame.

        The candidate that crosses top_p is itself removed; the best one always stays. A top_p of 1
        removes none: sums of floats may pass 1, by a rounding that differs between processors.
        """
        rank = torch.arange(num_candidates, device=top_p.device)
        share = top_p.where(top_p < 1, _ALWAYS).unsqueeze(1)
        most = torch.where(rank >= top_k.unsqueeze(1), _NEVER, share)
        most = most.masked_fill(rank == 0, _ALWAYS)
        return cls(most, temperature.clamp(min=MIN_TEMPERATURE).unsqueeze(1))


def probabilities(candidates: Candidates, cut: Cut) -> Tensor:
    """Return each candidate's probability, float32 [B, k]."""
    num = candidates.logits.shape[-1]
    removed = candidates.cumulative > cut.most[:, :num]
    scaled = candidates.logits / cut.temperature
    return scaled.masked_fill_(removed, float("-inf")).softmax(-1)


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """Return the winners' ranks int64 [B, 1]: a draw by `weights` [B, k], as an exponential race.

    A uniform number of exactly 0 never wins; if no other candidate is left, rank 0 does.
    """
    return (weights / -uniform.log()).argmax(-1, keepdim=True)


def replace_repeated(first: Tensor, second: Tensor, is_semantic: Tensor, window: Tensor) -> Tensor:
    """Return the second token where the first is semantic and among the window's, int64 [B].

    first, second int64 [B]; is_semantic bool [B], of the first; window int64 [B, RAS_WINDOW].
    Once and unconditionally: the second may be a repetition too.

    Source: repetition-aware sampling as in VALL-E 2 (arXiv 2406.05370).
    """
    repeated = is_semantic & (window == first.unsqueeze(1)).any(-1)
    return torch.where(repeated, second, first)
