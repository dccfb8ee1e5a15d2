"""Read the language model's sizes from a checkpoint's own config.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from synth.engine.errors import CheckpointError

T = TypeVar("T")
MODEL_TYPE = "fish_qwen3_omni"
DEFAULT_HEAD_DIM = 64  # not dim / n_head: what the format means when the key is missing
DEFAULT_ROPE_BASE = 10000.0
DEFAULT_NORM_EPS = 1e-5
DEFAULT_MAX_SEQ_LEN = 2048
SAME_AS_QUERY_HEADS = -1


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Hold what both transformers' blocks need; names are those of the file."""

    vocab_size: int
    dim: int
    n_layer: int
    n_head: int
    n_local_heads: int
    head_dim: int
    intermediate_size: int
    attention_qk_norm: bool
    attention_qkv_bias: bool
    attention_o_bias: bool


@dataclass(frozen=True, slots=True)
class TextConfig(TransformerConfig):
    """Hold the slow AR's sizes; `rope_base` and `norm_eps` serve the fast AR as well."""

    rope_base: float
    norm_eps: float
    max_seq_len: int
    tie_word_embeddings: bool


@dataclass(frozen=True, slots=True)
class AudioDecoderConfig(TransformerConfig):
    """Hold the fast AR's sizes; `vocab_size` is the size of every codebook, also the slow AR's."""

    num_codebooks: int
    text_dim: int | None


@dataclass(frozen=True, slots=True)
class LMConfig:
    """Hold a checkpoint's language-model configuration.

    The two token ids are what the file says; the tokenizer's own range takes their place, and a
    missing one is 0.
    """

    model_type: str
    text_config: TextConfig
    audio_decoder_config: AudioDecoderConfig
    semantic_start_token_id: int
    semantic_end_token_id: int


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Hold the ids the engine uses; code i of the first codebook is `semantic_begin + i`."""

    im_end: int
    semantic_begin: int
    semantic_end: int  # the last one, inclusive

    @property
    def num_semantic(self) -> int:
        return self.semantic_end - self.semantic_begin + 1


def matrix_parameters(config: LMConfig) -> int:
    """Return how many numbers the layers' matrices hold, which every frame reads."""
    total = 0
    for part in (config.text_config, config.audio_decoder_config):
        heads = part.n_head + 2 * part.n_local_heads
        attention = part.dim * part.head_dim * (heads + part.n_head)
        total += part.n_layer * (attention + 3 * part.dim * part.intermediate_size)
    return total


def load_config(checkpoint_dir: Path) -> LMConfig:
    """Read `checkpoint_dir/config.json`; raise CheckpointError naming what is wrong with it."""
    path = checkpoint_dir / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing.") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must contain a JSON object.")
    return parse_config(content)


def parse_config(content: Mapping[str, Any]) -> LMConfig:
    """Build the configuration from the parsed file; unknown keys are ignored.

    Missing and null keys take the format's defaults. A size that has no default, and a null in one
    of these, raises CheckpointError with the key's name.
    """
    root = _Section(content)
    model_type = content.get("model_type")
    if not isinstance(model_type, str):
        raise root.error("model_type", "a text")
    if model_type != MODEL_TYPE:
        raise CheckpointError(
            f"config.json: model_type is {model_type!r}, but must be {MODEL_TYPE!r}."
        )
    section = root.section("text_config")
    text = TextConfig(
        **_block_sizes(section, None),
        rope_base=section.number("rope_base", DEFAULT_ROPE_BASE),
        norm_eps=section.number("norm_eps", DEFAULT_NORM_EPS),
        max_seq_len=section.integer("max_seq_len", DEFAULT_MAX_SEQ_LEN),
        tie_word_embeddings=section.switch("tie_word_embeddings", True),
    )
    _check_heads(text, section)
    section = root.section("audio_decoder_config")
    audio = AudioDecoderConfig(
        **_block_sizes(section, text),
        num_codebooks=section.size("num_codebooks"),
        # Nothing reads it here; null stays null because "not stated" is no claim about the width.
        text_dim=section.values.get("text_dim", text.dim),
    )
    _check_heads(audio, section)
    begin, end = (
        root.integer(f"semantic_{which}_token_id", 0, low=0) for which in ("start", "end")
    )
    return LMConfig(model_type, text, audio, begin, end)


def _block_sizes(section: _Section, base: TextConfig | None) -> dict[str, Any]:
    """Return the fields of `TransformerConfig`; with a base, missing ones are the base's."""

    def size(key: str, default: int | None = None) -> int:
        fallback = default if base is None else int(getattr(base, key))
        return section.size(key) if fallback is None else section.integer(key, fallback)

    dim, n_head = size("dim"), size("n_head")
    local_heads = section.integer(
        "n_local_heads", SAME_AS_QUERY_HEADS if base is None else base.n_local_heads, low=-1
    )
    hidden = -(-int(2 * 4 * dim / 3) // 256) * 256  # two thirds of four times the width, rounded up
    switches = ("attention_qk_norm", "attention_qkv_bias", "attention_o_bias")
    return {
        "vocab_size": section.size("vocab_size"),
        "dim": dim,
        "n_layer": section.size("n_layer"),
        "n_head": n_head,
        "n_local_heads": n_head if local_heads == SAME_AS_QUERY_HEADS else local_heads,
        "head_dim": size("head_dim", DEFAULT_HEAD_DIM),
        "intermediate_size": size("intermediate_size", hidden),
        **{key: section.switch(key, base is not None and getattr(base, key)) for key in switches},
    }


def _check_heads(config: TransformerConfig, section: _Section) -> None:
    for ok, sentence in (
        (config.dim % config.n_head == 0, "dim is not a multiple of n_head"),
        (config.n_local_heads > 0, "n_local_heads is not positive"),
        (
            config.n_head % max(config.n_local_heads, 1) == 0,
            "n_head / n_local_heads is not a whole number",
        ),
        (config.head_dim % 2 == 0, "head_dim is odd"),
    ):
        if not ok:
            raise CheckpointError(f"config.json: {section.prefix}{sentence}.")


class _Section:
    """Read typed values out of one JSON object and name the key in every error."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self.values, self.prefix = values, prefix

    def section(self, key: str) -> _Section:
        value = self.values.get(key)
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return _Section(value, f"{key}.")

    def size(self, key: str) -> int:
        """Return a size without default; null would stand for a number that fits no checkpoint."""
        if self.values.get(key) is None:
            raise self.error(key, "a number, it has no default")
        return self.integer(key, 0)

    def integer(self, key: str, default: int, *, low: int = 1) -> int:
        wanted = f"a whole number from {low}"
        return self._read(key, default, int, lambda value: value >= low, wanted)

    def number(self, key: str, default: float) -> float:
        wanted = "a positive number"
        return float(self._read(key, default, (int, float), lambda value: value > 0, wanted))

    def switch(self, key: str, default: bool) -> bool:
        return bool(self._read(key, default, bool, lambda value: True, "true or false"))

    def _read(
        self, key: str, default: T, kind: Any, holds: Callable[[Any], bool], wanted: str
    ) -> T:
        value: Any = self.values.get(key)
        if value is None:
            return default
        is_kind = isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
        if not is_kind or not holds(value):
            raise self.error(key, wanted)
        return value  # type: ignore[no-any-return]  # it is of the kind

    def error(self, key: str, wanted: str) -> CheckpointError:
        found = repr(self.values[key]) if key in self.values else "missing"
        return CheckpointError(f"config.json: {self.prefix}{key} is {found}; expected {wanted}.")
