"""Decode one stream the plain way: eager PyTorch as a reference implementation does it.

What the engine is measured against. It computes the same model from the same weights, with plain
`F.linear`, attention over the whole allocated cache under a mask, keys and values repeated for
every query head, the full vocabulary's head, ten passes of the fast transformer, a sort of every
row that is drawn from, and a look at the end token after every frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from synth.contract import Sampling
from synth.engine.model.config import LMConfig, SpecialIds, TransformerConfig
from synth.engine.model.layers import apply_rope, rope_table
from synth.engine.model.sampling import (
    MIN_TEMPERATURE,
    RAS_WINDOW,
    SECOND_TEMPERATURE,
    SECOND_TOP_P,
)

CACHE_LENGTH = 2048


class _Transformer:
    """Run one of the two transformers a few positions at a time over a cache of fixed length."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        prefix: str,
        config: TransformerConfig,
        *,
        cache_length: int,
        norm_eps: float,
        rope_base: float,
    ) -> None:
        self.weights, self.prefix, self.config = weights, prefix, config
        self.norm_eps = norm_eps
        example = weights[f"{prefix}.norm.weight"]
        device = example.device
        shape = (1, config.n_local_heads, cache_length, config.head_dim)
        self.caches = [
            tuple(torch.zeros(shape, dtype=example.dtype, device=device) for _ in "kv")
            for _ in range(config.n_layer)
        ]
        positions = torch.arange(cache_length, device=device)
        self.rope = rope_table(positions, config.head_dim, rope_base)
        self.mask = torch.ones(cache_length, cache_length, dtype=torch.bool, device=device).tril()

    def run(self, x: Tensor, positions: Tensor, *, fused: bool) -> Tensor:
        """Return the normalised states [1, S, D] of inputs x at positions int64 [S]."""
        for layer in range(self.config.n_layer):
            h = x + self._attend(layer, self._norm(layer, "attention_norm", x), positions, fused)
            x = h + self._feed_forward(layer, self._norm(layer, "ffn_norm", h))
        return _rms(x, self.weights[f"{self.prefix}.norm.weight"], self.norm_eps)

    def _weight(self, layer: int, name: str) -> Tensor:
        return self.weights[f"{self.prefix}.layers.{layer}.{name}.weight"]

    def _norm(self, layer: int, name: str, x: Tensor) -> Tensor:
        return _rms(x, self._weight(layer, name), self.norm_eps)

    def _feed_forward(self, layer: int, x: Tensor) -> Tensor:
        gate = F.silu(F.linear(x, self._weight(layer, "feed_forward.w1")))
        up = F.linear(x, self._weight(layer, "feed_forward.w3"))
        return F.linear(gate * up, self._weight(layer, "feed_forward.w2"))

    def _attend(self, layer: int, x: Tensor, positions: Tensor, fused: bool) -> Tensor:
        config, size = self.config, x.shape[1]
        heads, kv_heads, head_dim = config.n_head, config.n_local_heads, config.head_dim
        qkv = F.linear(x, self._weight(layer, "attention.wqkv"))
        qkv = qkv.view(1, size, -1, head_dim)
        q, k, v = torch.split(qkv, [heads, kv_heads, kv_heads], dim=2)
        if config.attention_qk_norm:
            q = _head_norm(q, self._weight(layer, "attention.q_norm"), self.norm_eps)
            k = _head_norm(k, self._weight(layer, "attention.k_norm"), self.norm_eps)
        rope = self.rope[positions].unsqueeze(1)
        keys, values = self.caches[layer]
        keys[:, :, positions] = apply_rope(k, rope).transpose(1, 2)
        values[:, :, positions] = v.transpose(1, 2)
        repeats = heads // kv_heads
        all_keys = keys.repeat_interleave(repeats, dim=1)
        all_values = values.repeat_interleave(repeats, dim=1)
        queries, mask = apply_rope(q, rope).transpose(1, 2), self.mask[positions]
        if fused:
            with sdpa_kernel(SDPBackend.MATH):
                mixed = F.scaled_dot_product_attention(
                    queries, all_keys, all_values, attn_mask=mask[None, None]
                )
        else:  # rounded to the working dtype after every step
            scores = queries @ all_keys.transpose(-2, -1) / math.sqrt(head_dim)
            mixed = scores.masked_fill(~mask, -math.inf).softmax(-1) @ all_values
        return F.linear(mixed.transpose(1, 2).flatten(2), self._weight(layer, "attention.wo"))


class BaselineLoop:
    """Hold one stream; `prefill` starts it and `step` makes one frame after another."""

    def __init__(
        self,
        config: LMConfig,
        special: SpecialIds,
        weights: Mapping[str, Tensor],
        *,
        cache_length: int = CACHE_LENGTH,
    ) -> None:
        """Allocate the whole cache; `weights` are by path in `DualAR`, all of one dtype."""
        text, audio = config.text_config, config.audio_decoder_config
        if not text.tie_word_embeddings or audio.dim != text.dim:
            raise ValueError("the plain loop is for tied embeddings and equal widths")
        self.special, self.weights = special, weights
        self.num_codebooks, self.codebook_size = audio.num_codebooks, audio.vocab_size
        common = {"norm_eps": text.norm_eps, "rope_base": text.rope_base}
        self._slow = _Transformer(weights, "slow", text, cache_length=cache_length, **common)
        self._fast = _Transformer(
            weights, "fast", audio, cache_length=audio.num_codebooks, **common
        )
        self._bias = torch.full_like(weights["slow.embeddings.weight"][:, 0], -math.inf)
        self._bias[special.semantic_begin : special.semantic_end + 1] = 0
        self._bias[special.im_end] = 0
        self.position = 0
        self._column, self._window = self._bias, self._bias

    @torch.inference_mode()
    def prefill(self, columns: Tensor, sampling: Sampling) -> Tensor:
        """Start with a prompt int64 [1 + K, S]; return the first frame int64 [1 + K]."""
        self._window = torch.zeros(RAS_WINDOW, dtype=torch.int64, device=self._bias.device)
        self.position = 0
        return self._frame(columns.to(self._bias.device), sampling, is_first=True)

    @torch.inference_mode()
    def step(self, sampling: Sampling) -> Tensor:
        """Return the next frame int64 [1 + K]; its token may be the end token."""
        return self._frame(self._column.unsqueeze(1), sampling, is_first=False)

    def decode(self, frames: int, sampling: Sampling) -> int:
        """Make frames until their number or the end token; return how many were made."""
        for made in range(frames):
            if int(self.step(sampling)[0]) == self.special.im_end:
                return made + 1
        return frames

    def rewind(self, position: int) -> None:
        """Go on from an earlier position; what was cached behind it is written anew."""
        self.position = position

    def _frame(self, columns: Tensor, sampling: Sampling, *, is_first: bool) -> Tensor:
        size = columns.shape[1]
        positions = torch.arange(self.position, self.position + size, device=columns.device)
        hidden = self._slow.run(self._embed(columns.T).unsqueeze(0), positions, fused=True)
        hidden = hidden[:, -1:]
        self.position += size
        logits = F.linear(hidden, self.weights["slow.embeddings.weight"])[0, -1] + self._bias
        token = sample(logits, sampling.temperature, sampling.top_p, sampling.top_k)
        again = sample(logits, SECOND_TEMPERATURE, SECOND_TOP_P, sampling.top_k)
        if not is_first:
            begin, end = self.special.semantic_begin, self.special.semantic_end
            is_repeated = (self._window == token).any() & (token >= begin) & (token <= end)
            token = torch.where(is_repeated, again, token)
            self._window = torch.cat([self._window[1:], token])
        self._column = torch.cat([token, *self._codes(hidden, token, sampling)])
        return self._column

    def _codes(self, hidden: Tensor, token: Tensor, sampling: Sampling) -> list[Tensor]:
        """Return the frame's K codes, int64 [1] each: one pass for each position."""
        table, head = self.weights["fast.embeddings.weight"], self.weights["fast.output.weight"]
        device = token.device
        self._fast.run(hidden, torch.zeros(1, dtype=torch.int64, device=device), fused=False)
        code = (token - self.special.semantic_begin).clamp(0, self.codebook_size - 1)
        codes = [code]
        for position in range(1, self.num_codebooks):
            x = F.embedding(code, table).unsqueeze(0)
            place = torch.full((1,), position, dtype=torch.int64, device=device)
            logits = F.linear(self._fast.run(x, place, fused=False), head)[0, -1]
            code = sample(logits, sampling.temperature, sampling.top_p, sampling.top_k)
            codes.append(code)
        return codes

    def _embed(self, columns: Tensor) -> Tensor:
        """Return the inputs [S, D] of columns int64 [S, 1 + K]."""
        tokens, codes = columns[:, 0], columns[:, 1:]
        text = F.embedding(tokens, self.weights["slow.embeddings.weight"])
        offsets = torch.arange(self.num_codebooks, device=columns.device) * self.codebook_size
        audio = F.embedding(codes + offsets, self.weights["slow.codebook_embeddings.weight"])
        both = (text + audio.sum(dim=1)) / math.sqrt(self.num_codebooks + 1)
        begin, end = self.special.semantic_begin, self.special.semantic_end
        is_semantic = (tokens >= begin) & (tokens <= end)
        return torch.where(is_semantic.unsqueeze(-1), both, text)


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise in float32, cast back, then multiply."""
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)).type_as(x) * weight


def _head_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise in float32 and multiply there; cast once, at the end."""
    wide = x.float()
    wide = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * weight.float()).type_as(x)


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
