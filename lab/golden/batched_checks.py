"""Check the language model's golden vectors in a batch: shared steps, packed prompts, prefixes."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from lab.golden.batched_run import run_batched
from lab.golden.case import Check
from lab.golden.forward_checks import Forced, check_lm, check_lm_far
from lab.golden.generation_checks import (
    check_edge,
    check_end_to_end,
    check_greedy,
    check_limits,
    check_sampling,
)
from synth.engine.model.dual_ar import DualAR, Span
from synth.engine.model.kv_cache import KVCache

_BEFORE, _OWN, _AFTER, _HOLDER = range(4)  # slots: neighbours, the stream checked, the prefix
_SHORT = 7  # columns of the neighbours' own parts


@torch.inference_mode()
def run_forced_batched(model: DualAR, prompt: Tensor, steps: Tensor) -> Forced:
    """Feed a prompt [1 + K, S] behind a copied prefix, packed among others, then steps [1 + K, n].

    A third of the prompt is run once and copied to the stream checked and to a neighbour.
    """
    length, cut = prompt.shape[1], max(prompt.shape[1] // 3, 1)
    prompt, steps = prompt.to(model.device), steps.to(model.device)
    cache = KVCache.allocate(
        model.config.text_config,
        num_slots=4,
        num_positions=length + steps.shape[1],
        device=model.device,
        dtype=model.dtype,
    )
    columns = prompt.T
    prefix = model.slow.prefill(columns[:cut], [Span(_HOLDER, 0, cut)], cache)
    for slot in (_OWN, _AFTER):
        cache.write_prefix(slot, *cache.read_prefix(_HOLDER, cut))
    short = min(_SHORT, length - cut)
    spans = [Span(_BEFORE, 0, short), Span(_OWN, cut, length - cut), Span(_AFTER, cut, short)]
    packed = torch.cat([columns[-short:], columns[cut:], columns[:short]])
    own = model.slow.prefill(packed, spans, cache)[short : short + length - cut]
    position = torch.tensor([span.start + span.length for span in spans], device=model.device)
    rows = [own[-1]]
    for index in range(steps.shape[1]):
        beside = steps[:, -1 - index]  # any column will do
        batch = torch.stack([beside, steps[:, index], beside])
        made = model.slow.step(batch, position, cache.first(3), length=length + index + 1)
        rows.append(made[_OWN])
        position += 1
    hidden = torch.stack(rows)
    return Forced(
        torch.cat([prefix, own]).float(), hidden.float(), model.slow.logits(hidden).float()
    )


CHECKS: dict[str, Check] = {
    "lm.safetensors": partial(check_lm, run=run_forced_batched),
    "lm_far.safetensors": partial(check_lm_far, run=run_forced_batched),
    "greedy.safetensors": partial(check_greedy, run_jobs=run_batched),
    "sampling.safetensors": partial(check_sampling, run_jobs=run_batched),
    "edge.safetensors": partial(check_edge, run_jobs=run_batched),
    "limits.safetensors": partial(check_limits, run_jobs=run_batched),
    "end_to_end.safetensors": partial(check_end_to_end, run_jobs=run_batched),
}
COMPANIONS: dict[str, str] = {}
