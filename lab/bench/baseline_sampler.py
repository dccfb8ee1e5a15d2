"""Draw from a row of logits the plain way: sort all of it."""

from __future__ import annotations

import torch
from torch import Tensor

from synth.engine.model.sampling import MIN_TEMPERATURE


def sample(logits: Tensor, temperature: float, top_p: float, top_k: int) -> Tensor:
    """Return one index, int64 [1], of logits [V]; everything in the logits' own dtype.

    Top-p and top-k cut first, on probabilities without temperature; the candidate that crosses
    top_p goes too and the best one always stays. An exponential race then draws.
    """
    ordered, order = torch.sort(logits, descending=True)
    cumulative = torch.cumsum(torch.softmax(ordered, dim=-1), dim=-1)
    removed = cumulative > top_p
    removed[top_k:] = True
    removed[0] = False
    removed = torch.zeros_like(removed).scatter(0, order, removed)
    kept = logits.masked_fill(removed, -torch.inf) / max(temperature, MIN_TEMPERATURE)
    weights = torch.softmax(kept, dim=-1)
    # Never exactly 0 or 1 here: in bfloat16 a 0 would let a token win that was cut.
    uniform = torch.rand(weights.shape, device=weights.device).clamp_(1e-7, 1 - 1e-7)
    return torch.argmax(weights / -uniform.log(), dim=-1, keepdim=True)
