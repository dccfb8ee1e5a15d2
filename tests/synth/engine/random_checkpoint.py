"""Write small checkpoints with random weights, of shapes that no golden vector shows."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.synth.engine.conftest import GOLDEN

_TEXT = {
    "vocab_size": 880,
    "dim": 48,
    "n_layer": 2,
    "n_head": 4,
    "n_local_heads": 1,
    "head_dim": 16,
    "intermediate_size": 40,
    "rope_base": 5000.0,
    "norm_eps": 1e-4,
    "max_seq_len": 4096,
    "attention_qk_norm": True,
}
_AUDIO = {"vocab_size": 256, "num_codebooks": 10, "n_layer": 2, "attention_qk_norm": False}


def write_checkpoint(
    folder: Path, *, text: dict[str, Any] | None = None, audio: dict[str, Any] | None = None
) -> dict[str, Tensor]:
    """Write config, tokenizer and weights in the disk layout; return the weights."""
    sizes, audio_sizes = _TEXT | (text or {}), _AUDIO | (audio or {})
    config = {
        "model_type": "fish_qwen3_omni",
        "text_config": sizes,
        "audio_decoder_config": audio_sizes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shutil.copyfile(GOLDEN / "tiny-s2" / "tokenizer.json", folder / "tokenizer.json")
    weights = _random_weights(sizes, audio_sizes)
    save_file(weights, folder / "model.safetensors")
    return weights


def _random_weights(text: dict[str, Any], audio: dict[str, Any]) -> dict[str, Tensor]:
    audio = text | audio
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) / math.sqrt(shape[-1])

    weights = {
        "text_model.model.embeddings.weight": normal(text["vocab_size"], text["dim"]),
        "audio_decoder.codebook_embeddings.weight": normal(
            audio["num_codebooks"] * audio["vocab_size"], text["dim"]
        ),
        "audio_decoder.embeddings.weight": normal(audio["vocab_size"], audio["dim"]),
        "audio_decoder.output.weight": normal(audio["vocab_size"], audio["dim"]),
    }
    if not text.get("tie_word_embeddings", True):
        weights["text_model.model.output.weight"] = normal(text["vocab_size"], text["dim"])
    if audio["dim"] != text["dim"]:
        weights["audio_decoder.project_in.weight"] = normal(audio["dim"], text["dim"])
        weights["audio_decoder.project_in.bias"] = normal(audio["dim"])
    for prefix, sizes in (("text_model.model.", text), ("audio_decoder.", audio)):
        weights[f"{prefix}norm.weight"] = 1 + normal(sizes["dim"])
        for layer in range(sizes["n_layer"]):
            for name, tensor in _layer(sizes, normal).items():
                weights[f"{prefix}layers.{layer}.{name}"] = tensor
    return weights


def _layer(sizes: dict[str, Any], normal: Any) -> dict[str, Tensor]:
    width, ffn, head = sizes["dim"], sizes["intermediate_size"], sizes["head_dim"]
    q, kv = sizes["n_head"] * head, sizes["n_local_heads"] * head
    layer = {
        "attention.wqkv.weight": normal(q + 2 * kv, width),
        "attention.wo.weight": normal(width, q),
        "feed_forward.w1.weight": normal(ffn, width),
        "feed_forward.w3.weight": normal(ffn, width),
        "feed_forward.w2.weight": normal(width, ffn),
        "ffn_norm.weight": 1 + normal(width),
        "attention_norm.weight": 1 + normal(width),
    }
    if sizes.get("attention_qk_norm"):
        layer |= {f"attention.{name}_norm.weight": 1 + normal(head) for name in "qk"}
    if sizes.get("attention_qkv_bias"):
        layer["attention.wqkv.bias"] = normal(q + 2 * kv)
    if sizes.get("attention_o_bias"):
        layer["attention.wo.bias"] = normal(width)
    return layer
