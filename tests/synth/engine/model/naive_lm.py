"""Compute both transformers the plain way: float64, whole sequence, no cache, straight from disk.

Written apart from the engine's modules so that the two can disagree.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def slow_logits(
    weights: dict[str, Tensor], config: dict[str, Any], columns: Tensor, semantic: range
) -> tuple[Tensor, Tensor]:
    """Return hidden states [S, D] and logits [S, V] of columns int64 [1 + K, S]."""
    text, audio = config["text_config"], config["audio_decoder_config"]
    table = weights["text_model.model.embeddings.weight"].double()
    codes = weights["audio_decoder.codebook_embeddings.weight"].double()
    rows = []
    for column in columns.T.tolist():
        x = table[column[0]]
        if column[0] in semantic:
            for codebook, code in enumerate(column[1:]):
                x = x + codes[codebook * audio["vocab_size"] + code]
            x = x / math.sqrt(audio["num_codebooks"] + 1)
        rows.append(x)
    hidden = _transformer(weights, "text_model.model.", text, text, torch.stack(rows))
    head = weights.get("text_model.model.output.weight", table).double()
    return hidden, hidden @ head.T


def fast_logits(
    weights: dict[str, Tensor], config: dict[str, Any], hidden: Tensor, codes: Tensor
) -> Tensor:
    """Return logits [K, codebook_size] of a frame with codes [K] behind hidden [D]."""
    text = config["text_config"]
    audio = text | config["audio_decoder_config"]
    first = hidden.double()
    if "audio_decoder.project_in.weight" in weights:
        first = weights["audio_decoder.project_in.weight"].double() @ first
        first = first + weights["audio_decoder.project_in.bias"].double()
    table = weights["audio_decoder.embeddings.weight"].double()
    x = torch.stack([first, *(table[code] for code in codes[:-1].tolist())])
    out = _transformer(weights, "audio_decoder.", audio, text, x)
    return out @ weights["audio_decoder.output.weight"].double().T


def _transformer(
    weights: dict[str, Tensor],
    prefix: str,
    sizes: dict[str, Any],
    shared: dict[str, Any],
    x: Tensor,
) -> Tensor:
    eps, base = shared["norm_eps"], shared["rope_base"]
    for layer in range(sizes["n_layer"]):
        own = {
            name.removeprefix(f"{prefix}layers.{layer}."): tensor.double()
            for name, tensor in weights.items()
            if name.startswith(f"{prefix}layers.{layer}.")
        }
        x = x + _attention(own, sizes, _norm(x, own["attention_norm.weight"], eps), eps, base)
        z = _norm(x, own["ffn_norm.weight"], eps)
        gate = F.silu(z @ own["feed_forward.w1.weight"].T)
        x = x + (gate * (z @ own["feed_forward.w3.weight"].T)) @ own["feed_forward.w2.weight"].T
    return _norm(x, weights[f"{prefix}norm.weight"].double(), eps)


def _attention(
    own: dict[str, Tensor], sizes: dict[str, Any], x: Tensor, eps: float, base: float
) -> Tensor:
    heads, kv_heads, size = sizes["n_head"], sizes["n_local_heads"], sizes["head_dim"]
    qkv = F.linear(x, own["attention.wqkv.weight"], own.get("attention.wqkv.bias"))
    split = qkv.view(len(x), heads + 2 * kv_heads, size)
    outputs = []
    for head in range(heads):
        kv = head // (heads // kv_heads)
        q, k, v = split[:, head], split[:, heads + kv], split[:, heads + kv_heads + kv]
        if "attention.q_norm.weight" in own:
            q = _norm(q, own["attention.q_norm.weight"], eps)
            k = _norm(k, own["attention.k_norm.weight"], eps)
        scores = _rotate(q, base) @ _rotate(k, base).T / math.sqrt(size)
        above = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        outputs.append(scores.masked_fill(above, -math.inf).softmax(-1) @ v)
    mixed = torch.cat(outputs, dim=-1)
    return F.linear(mixed, own["attention.wo.weight"], own.get("attention.wo.bias"))


def _rotate(x: Tensor, base: float) -> Tensor:
    """Turn adjacent pairs as complex numbers whose parts were rounded to bfloat16."""
    size = x.shape[-1]
    frequencies = 1.0 / base ** (torch.arange(0, size, 2).float() / size)
    angles = torch.arange(len(x)).float()[:, None] * frequencies
    turn = torch.complex(angles.cos().bfloat16().double(), angles.sin().bfloat16().double())
    pairs = torch.view_as_complex(x.view(len(x), -1, 2).contiguous())
    return torch.view_as_real(pairs * turn).view(len(x), size)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight
