"""Name model shapes that can be made at random: `full` as published, `mid` and `tiny` for a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from synth.engine.codec.config import ENCODER_WINDOW, MODULE_WINDOW, SAMPLE_RATE, CodecConfig
from synth.engine.codec.config import TransformerConfig as CodecTransformer
from synth.engine.errors import InvalidSpecError
from synth.engine.model.config import MODEL_TYPE, LMConfig, parse_config

# Places of special tokens relative to the first semantic one, and the rows that follow the last:
# those of the published vocabulary.
IM_START, IM_END, VOICE, PADDING_ROWS = -34, -33, -5, 2


@dataclass(frozen=True)
class Preset:
    """Hold one shape: `lm` is the content of its config.json."""

    name: str
    summary: str
    lm: Mapping[str, Any]
    codec: CodecConfig

    @cached_property
    def config(self) -> LMConfig:
        return parse_config(self.lm)

    @property
    def semantic_begin(self) -> int:
        return int(self.lm["semantic_start_token_id"])

    @property
    def special_tokens(self) -> dict[str, int]:
        """Return the ids of the tokens that prompts use, the semantic ones included."""
        begin, config = self.semantic_begin, self.config
        named = {"<|im_start|>": IM_START, "<|im_end|>": IM_END, "<|voice|>": VOICE}
        ids = {token: begin + offset for token, offset in named.items()}
        codes = range(config.audio_decoder_config.vocab_size)
        return ids | {f"<|semantic:{code}|>": begin + code for code in codes}


def preset(name: str) -> Preset:
    """Return a preset by its name; InvalidSpecError names those that exist."""
    if name not in PRESETS:
        known = ", ".join(PRESETS)
        raise InvalidSpecError(f"{name!r} is not a preset; use one of {known}.")
    return PRESETS[name]


def _sizes(
    dim: int, n_layer: int, intermediate_size: int, heads: tuple[int, int, int]
) -> dict[str, Any]:
    n_head, n_local_heads, head_dim = heads
    return {
        "dim": dim,
        "n_layer": n_layer,
        "intermediate_size": intermediate_size,
        "n_head": n_head,
        "n_local_heads": n_local_heads,
        "head_dim": head_dim,
        "attention_qkv_bias": False,
        "attention_o_bias": False,
    }


def _lm(
    vocab_size: int, codes: int, text: Mapping[str, Any], audio: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a config.json; `text` and `audio` hold the sizes, the rest is as published."""
    begin = vocab_size - PADDING_ROWS - codes
    own = {"rope_base": 1_000_000, "norm_eps": 1e-6, "max_seq_len": 32_768}
    own |= {"attention_qk_norm": True, "tie_word_embeddings": True}
    return MappingProxyType(
        {
            "model_type": MODEL_TYPE,
            "dtype": "bfloat16",
            "semantic_start_token_id": begin,
            "semantic_end_token_id": begin + codes - 1,
            "eos_token_id": begin + IM_END,
            "text_config": {"vocab_size": vocab_size, **own, **text},
            "audio_decoder_config": {
                "vocab_size": codes,
                "num_codebooks": 10,
                "attention_qk_norm": False,
                **audio,
            },
        }
    )


def _codec(width: int, codebook_dim: int, semantic: int, residual: int) -> CodecConfig:
    """Return a codec of the published layers, 16 * `width` channels wide (64 as published)."""
    dim = 16 * width

    def module(num_layers: int, window: int) -> CodecTransformer:
        return CodecTransformer(dim, num_layers, max(dim // 64, 1), 3 * dim, window)

    return CodecConfig(
        sample_rate=SAMPLE_RATE,
        latent_dim=dim,
        encoder_dim=width,
        encoder_strides=(2, 4, 8, 8),
        decoder_dim=24 * width,
        decoder_rates=(8, 8, 4, 2),
        downsample_factors=(2, 2),
        upsample_factors=(2, 2),
        codebook_dim=codebook_dim,
        semantic_codebook_size=semantic,
        residual_codebook_size=residual,
        num_residual_codebooks=9,
        encoder_transformer=module(4, ENCODER_WINDOW),
        pre_module=module(8, MODULE_WINDOW),
        post_module=module(8, MODULE_WINDOW),
    )


_TINY, _MID, _FULL = (4, 2, 16), (12, 4, 64), (32, 8, 128)
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        one.name: one
        for one in (
            Preset(
                "tiny",
                "two layers of 64: to try a command quickly; its figures mean nothing",
                _lm(1024, 256, _sizes(64, 2, 160, _TINY), _sizes(64, 2, 96, _TINY)),
                _codec(4, 4, 256, 64),
            ),
            Preset(
                "mid",
                "slow 14 x 768, fast 4 x 768, codec of quarter width: for figures on a CPU",
                _lm(20_480, 4096, _sizes(768, 14, 2304, _MID), _sizes(768, 4, 1152, _MID)),
                _codec(16, 8, 4096, 1024),
            ),
            Preset(
                "full",
                "the published S2-Pro shape, 4.56 billion parameters: for figures on a GPU",
                _lm(155_776, 4096, _sizes(2560, 36, 9728, _FULL), _sizes(2560, 4, 9728, _FULL)),
                _codec(64, 8, 4096, 1024),
            ),
        )
    }
)
