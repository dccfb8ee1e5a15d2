"""Choose tokens from logits: noise, top-p and top-k, then temperature, then one race per draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from synth.contract import MAX_TOP_K, SEED, TEMPERATURE, TOP_P, Sampling
from synth.engine.errors import InvalidSpecError

SLOW_DRAWS = 2  # the draw and the one that may replace it; the fast AR's draws follow

_MASK32 = 0xFFFFFFFF
_PHILOX_ROUNDS = 10
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
# Both below 2**31, so that a product with 32 bits stays inside int64.
_MIX_MULTIPLIERS = (0x21F0AAAD, 0x735A2D97)
# Goes into the keys of takes. Raise it, and record the new version's draws, when the same logits,
# seed and frame can give other tokens in any sampler: here, the kernels' torch form, Triton's, C's.
SAMPLER_VERSION = 2
SECOND_TEMPERATURE = 1.0  # the draw that replaces a repeated token has its own two values
SECOND_TOP_P = 0.9
RAS_WINDOW = 10
MIN_TEMPERATURE = 1e-5  # what the logits are divided by at least
DEFAULT_MAX_TOP_K = MAX_TOP_K
_NEVER, _ALWAYS = -1.0, 3.0  # limits that every sum of probabilities exceeds, and none


class FrameNoise(Protocol):
    """Give the uniform numbers of one frame of a batch."""

    def uniform(self, draw: int, ids: Tensor) -> Tensor:
        """Return float32 in [0, 1), shaped like ids int64 [B, k], for the draw's candidates.

        `draw` 0 and 1 are the slow AR's with token ids, draw 1 + k is codebook k's with codes.
        """
        ...


class NoiseSource(Protocol):
    """Give the noise of frames; implementations say whether they keep state."""

    def frame(self, seeds: Tensor, frames: Tensor, num_draws: int) -> FrameNoise:
        """Return the noise of each stream's frame: seeds and frames int64 [B], from 0."""
        ...


def draw_words(seeds: Tensor, frames: Tensor, num_draws: int) -> Tensor:
    """Return two words below 2**32 for each draw of frames: int64 [B] twice to [B, draws, 2]."""
    draws = torch.arange(num_draws, device=seeds.device)
    seed, frame = seeds.unsqueeze(1), frames.unsqueeze(1)
    zeros = torch.zeros_like(seed) * draws  # also gives every word the full shape
    counter = (zeros + (frame & _MASK32), zeros + (frame >> 32), zeros + draws, zeros)
    words = philox(counter, (seed & _MASK32, seed >> 32))
    return torch.stack(words[:2], dim=-1)


@dataclass(frozen=True, slots=True, eq=False)
class CounterFrame:
    """Hold the words of one frame of a batch, int64 [B, draws, 2]."""

    words: Tensor

    def uniform(self, draw: int, ids: Tensor) -> Tensor:
        """Return odd multiples of 2**-24, so neither 0 nor 1 and exact in float32."""
        words = self.words[:, draw]
        mixed = _mix((ids + words[:, :1]).bitwise_and_(_MASK32)).bitwise_xor_(words[:, 1:])
        return _mix(mixed).bitwise_right_shift_(9).to(torch.float32).add_(0.5).mul_(2.0**-23)


def philox(counter: Sequence[Tensor], key: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Return Philox4x32-10 of four counter words and two key words, int64 below 2**32 each.

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_PHILOX_ROUNDS):
        high0, low0 = _multiply(c0, _PHILOX_MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _PHILOX_MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = (k0 + _PHILOX_KEY_STEPS[0]) & _MASK32
        k1 = (k1 + _PHILOX_KEY_STEPS[1]) & _MASK32
    return [c0, c1, c2, c3]


def _multiply(a: Tensor, b: int) -> tuple[Tensor, Tensor]:
    """Return the high and low 32 bits of a * b; in halves, as int64 has no room for 64 bits."""
    low_part, high_part = a * (b & 0xFFFF), a * (b >> 16)
    high = (high_part + (low_part >> 16)) >> 16
    low = (low_part + ((high_part & 0xFFFF) << 16)) & _MASK32
    return high, low


def _mix(x: Tensor) -> Tensor:
    """Scatter 32 bits over 32 bits, one to one, in place."""
    x.bitwise_xor_(x >> 16).mul_(_MIX_MULTIPLIERS[0]).bitwise_and_(_MASK32)
    x.bitwise_xor_(x >> 15).mul_(_MIX_MULTIPLIERS[1]).bitwise_and_(_MASK32)
    return x.bitwise_xor_(x >> 15)


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
    allows_top_k = sampling.top_k <= max_top_k or max_top_k >= num_rows
    for name, is_good, wanted in (
        ("top_p", TOP_P.holds(sampling.top_p), f"it must be {TOP_P.words}"),
        ("temperature", TEMPERATURE.holds(sampling.temperature), f"it must be {TEMPERATURE.words}"),
        ("top_k", sampling.top_k >= low, f"it must be {low} or more"),
        ("top_k", allows_top_k, f"this engine allows at most {max_top_k}"),
        ("max_frames", sampling.max_frames >= low, f"it must be {low} or more"),
        ("seed", SEED.holds(sampling.seed), f"it must be {SEED.words}"),
    ):
        if not is_good:
            raise InvalidSpecError(f"{name} is {getattr(sampling, name)}; {wanted}.")


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
