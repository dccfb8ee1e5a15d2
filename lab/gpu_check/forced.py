"""Step a model over columns that are given, and keep what its steps leave behind."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lab.bench.stepping import random_prompt
from synth.contract import Sampling
from synth.engine.model.decode import step_tensors
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.prefill import SlotPrompt, prefill

STREAMS, PROMPT = 2, 8


@dataclass(frozen=True, slots=True, eq=False)
class Forced:
    """Hold what steps left: `cache` float32 [2, B, KV, S, D], the last layer's keys and values.

    `columns` int64 [F, B, 1 + K] are the most likely tokens and codes, each frame's codes behind
    that frame's own token; what goes into the next step is given and not these.
    """

    cache: Tensor
    columns: Tensor

    def compared(self, other: Forced) -> dict[str, float]:
        """Return how far another model's steps are from these.

        `cache_error` is the difference's norm over the norm; `same_tokens` the share of frames with
        the same token; `same_codes` of codes that are the same where all before them were.
        """
        error = float((other.cache - self.cache).norm() / self.cache.norm())
        same = self.columns == other.columns
        so_far = same.long().cumprod(-1).bool()
        reached = so_far[..., 1:-1]  # of the codes behind the first, which is the token's own
        codes = same[..., 2:][reached]
        return {
            "cache_error": error,
            "same_tokens": float(same[..., 0].double().mean()),
            "same_codes": float(codes.double().mean()) if codes.numel() else 0.0,
        }


@torch.inference_mode()
def forced_steps(model: DualAR, *, frames: int, seed: int = 0) -> Forced:
    """Run random speech through whole decode steps, as the engine computes them."""
    positions = PROMPT + frames + 1
    state = DecodeState.allocate(model, num_slots=STREAMS, max_positions=positions)
    sampling = Sampling(top_k=1, max_frames=frames + 1)
    prompts = []
    for slot in range(STREAMS):
        state.assign(slot, sampling, prompt_positions=PROMPT)
        prompts.append(SlotPrompt(slot, random_prompt(model, PROMPT, seed=seed + slot)))
    prefill(model, state, prompts)
    given = _speech(model, frames, seed).to(model.device)
    made = []
    for frame in range(frames):
        state.columns.copy_(given[frame])
        output = step_tensors(model, state, None, length=state.cache.num_positions)
        state.note_step()
        made.append(output.columns.clone())
    end = PROMPT + frames
    cache = torch.stack(
        [each[-1, :, :, :end].float() for each in (state.cache.keys, state.cache.values)]
    )
    return Forced(cache, torch.stack(made))


def _speech(model: DualAR, frames: int, seed: int) -> Tensor:
    """Return columns of speech, int64 [F, B, 1 + K]."""
    generator = torch.Generator().manual_seed(seed)
    shape = (frames, STREAMS, model.fast.num_codebooks)
    codes = torch.randint(model.fast.codebook_size, shape, generator=generator)
    return torch.cat([codes[..., :1] + model.special.semantic_begin, codes], dim=-1)
