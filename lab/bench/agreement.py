"""Measure how far a number format's logits are from those of plain float32 matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.model.dual_ar import DualAR
from synth.engine.model.kv_cache import KVCache

STREAMS = 2


@dataclass(frozen=True, slots=True)
class Agreement:
    """Hold what a forced run found: both models read the same columns and nothing is drawn.

    `logits_error` is the difference's norm as a share of the logits' norm, of both transformers;
    `largest_error` the largest difference of a single logit; `top1_agreement` the share of rows
    whose most likely token or code is the same.
    """

    logits_error: float
    largest_error: float
    top1_agreement: float


@torch.inference_mode()
def measure_agreement(model: DualAR, exact: DualAR, *, frames: int, seed: int) -> Agreement:
    """Run random speech through both models, frame by frame, and compare all logits."""
    found, expected = (_forced_logits(one, frames=frames, seed=seed) for one in (model, exact))
    difference = sum(float((a - b).square().sum()) for a, b in zip(found, expected, strict=True))
    size = sum(float(b.square().sum()) for b in expected)
    pairs = zip(found, expected, strict=True)
    same = torch.cat([(a.argmax(-1) == b.argmax(-1)).flatten() for a, b in pairs])
    largest = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    return Agreement((difference / size) ** 0.5, largest, float(same.float().mean()))


def _forced_logits(model: DualAR, *, frames: int, seed: int) -> Sequence[Tensor]:
    """Return the slow logits [frames, B, R] and the fast ones [frames, K - 1, B, codes]."""
    slow, fast = model.slow, model.fast
    generator = torch.Generator().manual_seed(seed)
    shape = (frames, STREAMS, fast.num_codebooks)
    codes = torch.randint(fast.codebook_size, shape, generator=generator).to(model.device)
    columns = torch.cat([codes[..., :1] + model.special.semantic_begin, codes], dim=-1)
    cache = KVCache.allocate(
        model.config.text_config,
        num_slots=STREAMS,
        num_positions=frames,
        device=model.device,
        dtype=model.dtype,
    )
    frame_cache = fast.allocate_cache(STREAMS)
    slow_logits, fast_logits = [], []
    for frame in range(frames):
        position = torch.full((STREAMS,), frame, device=model.device)
        hidden = slow.step(columns[frame], position, cache, length=frames)
        slow_logits.append(slow.logits(hidden).float())
        rows = [fast.first(hidden, codes[frame, :, 0], frame_cache)]
        for codebook in range(2, fast.num_codebooks):
            rows.append(fast.next(codes[frame, :, codebook - 1], codebook, frame_cache))
        fast_logits.append(torch.stack(rows).float())
    return torch.stack(slow_logits), torch.stack(fast_logits)
