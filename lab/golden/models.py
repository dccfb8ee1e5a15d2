"""Load a golden folder's model once and give its pieces to the checks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.golden.case import GoldenFolder
from lab.golden.generate import pair_voices
from lab.golden.noise import CounterNoise, TorchNoise
from lab.golden.vocabulary import read_vocabulary
from synth.contract import Sampling
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.config import REFERENCE
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.kv_cache import KVCache
from synth.engine.model.linear import LinearForm
from synth.engine.model.sampling import NoiseSource
from synth.engine.prompt import VoicePrompt
from synth.engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Hold one checkpoint's model and tokenizer."""

    model: DualAR
    tokenizer: Tokenizer

    @property
    def kept(self) -> Tensor:
        """Return the token ids whose logits the model computes, int64 [R] on the CPU."""
        return self.model.slow.head_tokens.cpu()


def load(
    folder: GoldenFolder, dtype: torch.dtype = torch.float32, form: LinearForm = LinearForm.PLAIN
) -> Loaded:
    """Return the folder's checkpoint on its device; loaded once per dtype and form."""
    return _load(folder.checkpoint, dtype, folder.device, form)


@lru_cache(maxsize=4)
def _load(
    checkpoint_dir: Path, dtype: torch.dtype, device: torch.device, form: LinearForm
) -> Loaded:
    tokenizer = read_vocabulary(checkpoint_dir)
    model = load_dual_ar(checkpoint_dir, device=device, dtype=dtype, form=form, tokenizer=tokenizer)
    return Loaded(*model)


def new_cache(model: DualAR, num_positions: int) -> KVCache:
    """Return the cache of one stream."""
    return KVCache.allocate(
        model.config.text_config,
        num_slots=1,
        num_positions=num_positions,
        device=model.device,
        dtype=model.dtype,
    )


def sampling_of(row: dict[str, Any]) -> Sampling:
    """Return a row's sampling parameters; its seed belongs to the noise source."""
    return Sampling(
        temperature=row["temperature"],
        top_p=row.get("top_p", 0.9),
        top_k=row["top_k"],
        max_frames=row["max_new_tokens"],
    )


def noise_of(loaded: Loaded, row: dict[str, Any]) -> NoiseSource:
    """Return the noise in the reference's order where a row has a seed, else our own."""
    if "seed" not in row:
        return CounterNoise()
    generator = torch.Generator().manual_seed(row["seed"])
    return TorchNoise(
        generator,
        vocab_size=loaded.model.config.text_config.vocab_size,
        codebook_size=loaded.model.slow.codebook_size,
    )


def voices_of(
    row: dict[str, Any], arrays: dict[str, Tensor], prefix: str
) -> tuple[VoicePrompt, ...]:
    """Return a row's voices: its `prompt_text` and the arrays `prefix.prompt_codes.i`."""
    codes: list[Tensor] = []
    while (name := f"{prefix}.prompt_codes.{len(codes)}") in arrays:
        codes.append(arrays[name])
    return pair_voices(row.get("prompt_text"), codes, REFERENCE)
