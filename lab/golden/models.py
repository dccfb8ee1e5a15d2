"""Load a golden folder's model once and give its pieces to the checks.

Most vectors hold their prompts ready: with nothing but torch, tokens are read as ids alone.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.golden.case import GoldenFolder
from lab.golden.generate import pair_voices
from lab.golden.noise import CounterNoise, TorchNoise
from synth.contract import Sampling
from synth.engine.errors import EngineError
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.kv_cache import KVCache
from synth.engine.model.linear import LinearForm
from synth.engine.model.sampling import NoiseSource
from synth.engine.prompt import Tokenizer, VoicePrompt


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
    return pair_voices(row.get("prompt_text"), codes, like_reference=True)


class NoTokenizerError(EngineError):
    """A case has a text, and the library that turns it into ids is not installed."""

    code = "golden_without_tokenizer"


@dataclass(frozen=True, slots=True)
class AddedToken:
    """Hold an added token as tokenizer.json has it."""

    content: str
    special: bool


class VocabularyFile:
    """Know the ids of a tokenizer.json; `encode` and `decode` raise NoTokenizerError."""

    def __init__(self, path: Path) -> None:
        content = json.loads(path.read_text(encoding="utf-8"))
        self._model: dict[str, int] = content["model"]["vocab"]
        self._added = {
            row["id"]: AddedToken(row["content"], row["special"]) for row in content["added_tokens"]
        }

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        """Raise NoTokenizerError."""
        raise NoTokenizerError("The package tokenizers is not installed: no text can be encoded.")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Raise NoTokenizerError."""
        raise NoTokenizerError("The package tokenizers is not installed: no ids can be decoded.")

    def get_vocab(self, *, with_added_tokens: bool) -> Mapping[str, int]:
        """Return every token's id."""
        added = {token.content: token_id for token_id, token in self._added.items()}
        return self._model | (added if with_added_tokens else {})

    def get_added_tokens_decoder(self) -> Mapping[int, AddedToken]:
        """Return the added tokens by id."""
        return self._added

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id, None where there is no such token."""
        return self.get_vocab(with_added_tokens=True).get(token)


def has_library() -> bool:
    """Return whether texts can be encoded here."""
    try:
        return importlib.util.find_spec("tokenizers") is not None
    except ValueError:  # a module that somebody has taken out of the way
        return False


def read_vocabulary(checkpoint_dir: Path) -> Tokenizer | None:
    """Return a tokenizer that knows ids alone, None where the library is there to read it."""
    path = checkpoint_dir / "tokenizer.json"
    return None if has_library() or not path.is_file() else Tokenizer(VocabularyFile(path))
