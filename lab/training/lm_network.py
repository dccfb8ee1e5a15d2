"""Build the engine's own transformers with weights that learn, and run whole sequences through."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab.training.sound.pitch import NUM_PHASES
from lab.training.tokens import END, PAD, make_tokenizer
from synth.engine.model.config import LMConfig, parse_config
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.layers import Block, rms_norm, rope_table
from synth.engine.native.library import find_processor
from synth.engine.prompt import Tokenizer

MAX_POSITIONS = 4096
LM_FILE = "model.safetensors"
_LONGEST_SEQUENCE = 2048  # that is trained on
_NEVER = -1e4  # as a score; a larger one overflows in float16


@dataclass(frozen=True, slots=True)
class LMSizes:
    """Hold the sizes of both transformers; `codes` is the semantic codebook's."""

    codes: int = 256
    num_codebooks: int = 10
    dim: int = 192
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 48
    ffn: int = 512
    fast_layers: int = 4
    fast_ffn: int = 384


def config_json(sizes: LMSizes) -> dict[str, Any]:
    """Return the content of the checkpoint's `config.json`."""
    tokenizer = make_tokenizer(sizes.codes)
    begin = Tokenizer(tokenizer).special.semantic_begin
    shared = {
        "dim": sizes.dim,
        "n_head": sizes.heads,
        "n_local_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "attention_qkv_bias": False,
        "attention_o_bias": False,
    }
    return {
        "model_type": "fish_qwen3_omni",
        "dtype": "bfloat16",
        "semantic_start_token_id": begin,
        "semantic_end_token_id": begin + sizes.codes - 1,
        "eos_token_id": tokenizer.token_to_id(END),
        "pad_token_id": tokenizer.token_to_id(PAD),
        "text_config": {
            "model_type": "fish_qwen3",
            "vocab_size": tokenizer.get_vocab_size(),
            "n_layer": sizes.layers,
            "intermediate_size": sizes.ffn,
            "rope_base": 10000.0,
            "norm_eps": 1e-6,
            "max_seq_len": MAX_POSITIONS,
            "attention_qk_norm": True,
            "tie_word_embeddings": True,
            **shared,
        },
        "audio_decoder_config": {
            "model_type": "fish_qwen3_audio_decoder",
            "vocab_size": sizes.codes,
            "num_codebooks": sizes.num_codebooks,
            "text_dim": sizes.dim,
            "n_layer": sizes.fast_layers,
            "intermediate_size": sizes.fast_ffn,
            "attention_qk_norm": False,
            **shared,
        },
    }


def disk_name(name: str) -> str:
    """Return the name on disk of a parameter of our model."""
    part, _, rest = name.partition(".")
    if part == "fast":
        return f"audio_decoder.{rest}"
    if rest.startswith("codebook_embeddings."):
        return f"audio_decoder.{rest}"
    return f"text_model.model.{rest}"


class TaughtLM(nn.Module):
    """Hold a language model, and a matrix that reads the last frame's phase off its states.

    A frame's phase number is the last one's plus its pitch's number. Without the matrix the states
    take very long to hold the last one. It is not exported.
    """

    def __init__(self, lm: DualAR) -> None:
        super().__init__()
        self.lm = lm
        self.phase_reader = nn.Linear(lm.config.text_config.dim, NUM_PHASES)


def build_lm(sizes: LMSizes) -> DualAR:
    """Return a model with random weights, ready for `hidden_states` and `residual_logits`."""
    config: LMConfig = parse_config(config_json(sizes))
    model = DualAR(config, Tokenizer(make_tokenizer(sizes.codes)).special)
    for name, weight in model.named_parameters():
        if weight.dim() < 2:
            nn.init.ones_(weight)  # norms; the model has no biases
            continue
        into_stream = name.endswith(("wo.weight", "w2.weight"))
        nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * sizes.layers) if into_stream else 1))
    # Looked-up rows are summed, eight a frame; larger ones help a narrow model.
    nn.init.normal_(model.slow.embeddings.weight, std=0.05)
    nn.init.normal_(model.slow.codebook_embeddings.weight, std=0.05)
    prepare(model)
    return model


def prepare(model: DualAR, device: torch.device | str = "cpu") -> None:
    """Move a model and give it the tables that a loaded one has, without fusing its weights."""
    model.to(device)
    slow, fast = model.slow, model.fast
    slow.special = model.special
    slow.codebook_offsets = torch.arange(slow.num_codebooks, device=device) * slow.codebook_size
    places = torch.arange(_LONGEST_SEQUENCE, device=device)
    slow.rope = rope_table(places, slow.head_dim, slow.rope_base)
    fast.rope = rope_table(places[: fast.num_codebooks], fast.config.head_dim, fast.rope_base)


def hidden_states(model: DualAR, columns: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Run padded sequences through the slow AR.

    Args:
        columns: int64 [B, S, 1 + K].

    Returns:
        Normalised states [B, S, width], and for the first head of the two middle layers, which are
        taught to look at the letter being spoken, the log of what each position heeds, [B, S, S].
    """
    slow = model.slow
    rope = slow.rope[: columns.shape[1]].unsqueeze(1)
    x, maps = slow.embed(columns), []
    future = _future(columns.shape[1], columns.device)
    for index, layer in enumerate(slow.blocks):
        q, k, v = layer.project(x, rope)
        keys, values = k.transpose(1, 2), v.transpose(1, 2)
        if index in (len(slow.blocks) // 2 - 1, len(slow.blocks) // 2):
            maps.append(_log_attention(q[:, :, 0], keys[:, 0]))
        x = _finish(layer, x, _attend(q, keys, values, future))
    return rms_norm(x, slow.norm.weight, slow.norm_eps), maps


def residual_logits(model: DualAR, hidden: Tensor, codes: Tensor) -> Tensor:
    """Return the logits of a frame's residual codes, [n, K - 1, codes], each knowing those before.

    `hidden` [n, width] is the slow AR's state that precedes the frame, `codes` int64 [n, K].
    """
    fast = model.fast
    rope = fast.rope.unsqueeze(1)
    x = torch.cat([hidden[:, None], fast.embeddings(codes[:, :-1])], dim=1)
    future = _future(x.shape[1], x.device)
    for layer in fast.blocks:
        q, k, v = layer.project(x, rope)
        x = _finish(layer, x, _attend(q, k.transpose(1, 2), v.transpose(1, 2), future))
    logits: Tensor = fast.output(rms_norm(x[:, 1:], fast.norm.weight, fast.norm_eps))
    return logits


def _future(count: int, device: torch.device) -> Tensor:
    """Return what is added to scores [S, S] so that no position sees a later one."""
    kind = torch.float32
    if torch.is_autocast_enabled(device.type):
        kind = torch.get_autocast_dtype(device.type)
    return torch.full((count, count), _NEVER, dtype=kind, device=device).triu(1)


def _attend(q: Tensor, keys: Tensor, values: Tensor, future: Tensor) -> Tensor:
    """Return causal attention [B, S, H D] by two matrix products, in the numbers of `future`.

    Forward and backward take half the time that torch's fused attention takes on a CPU.

    Args:
        q: [B, S, H, D]; keys, values: [B, KV, S, D], each for H / KV heads.
    """
    batch, count, heads, dim = q.shape
    kv_heads, kind = keys.shape[1], future.dtype
    group = heads // kv_heads
    scaled = (q.to(kind) / math.sqrt(dim)).view(batch, count, kv_heads, group, dim)
    queries = scaled.permute(0, 2, 3, 1, 4).reshape(batch * kv_heads, group * count, dim)
    k, v = (each.to(kind).reshape(batch * kv_heads, count, dim) for each in (keys, values))
    scores = torch.bmm(queries, k.transpose(1, 2)).view(-1, group, count, count) + future
    mixed = torch.bmm(scores.softmax(-1).view(-1, group * count, count), v)
    mixed = mixed.view(batch, kv_heads, group, count, dim).permute(0, 3, 1, 2, 4)
    return mixed.reshape(batch, count, heads * dim)


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether a device multiplies bfloat16 in hardware, which halves the time of a step."""
    return device.type == "cuda" or find_processor().bf16


def _log_attention(q: Tensor, k: Tensor) -> Tensor:
    """Return the causal log-softmax [B, S, S] of one head's q and k, [B, S, D]."""
    scores = q.float() @ k.float().transpose(1, 2) / math.sqrt(q.shape[-1])
    future = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, -1e9).log_softmax(-1)


def _finish(layer: Block, x: Tensor, mixed: Tensor) -> Tensor:
    """Do what `Block.finish` does, on the two matrices that the engine would have joined."""
    h: Tensor = x + layer.attention.wo(mixed)
    normed = rms_norm(h, layer.ffn_norm.weight, layer.norm_eps)
    forward = layer.feed_forward
    if forward.w1 is None or forward.w3 is None:
        raise RuntimeError("a model that is finalized for use cannot be trained")
    out: Tensor = h + forward.w2(F.silu(forward.w1(normed)) * forward.w3(normed))
    return out
