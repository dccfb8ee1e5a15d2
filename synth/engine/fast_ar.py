"""Run the fast AR: the transformer along codebooks that fills one frame's residual codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from synth.engine.config import LMConfig
from synth.engine.kv_cache import KVCache
from synth.engine.layers import Block, Embedding, rms_norm, rope_table


class FastAR(nn.Module):
    """Hold the fast transformer; `finalize` must run once after its weights are assigned.

    One embedding table and one output matrix serve all codebooks. Position 0 of a frame is the slow
    AR's hidden state, position k the code of codebook k - 1.
    """

    rope: Tensor

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        text, audio = config.text_config, config.audio_decoder_config
        self.config = audio
        self.norm_eps, self.rope_base = text.norm_eps, text.rope_base
        self.num_codebooks, self.codebook_size = audio.num_codebooks, audio.vocab_size
        self.project_in = nn.Linear(text.dim, audio.dim) if audio.dim != text.dim else None
        self.embeddings = Embedding(audio.vocab_size, audio.dim)
        self.layers = nn.ModuleList(Block(audio, text.norm_eps) for _ in range(audio.n_layer))
        self.norm = nn.RMSNorm(audio.dim)
        self.output = nn.Linear(audio.dim, audio.vocab_size, bias=False)

    @property
    def blocks(self) -> Sequence[Block]:
        """Return the layers under their own type."""
        return cast("Sequence[Block]", self.layers)

    def finalize(self) -> None:
        """Fuse matrices and build the rotary table of a frame's positions."""
        for layer in self.blocks:
            layer.feed_forward.fuse()
        positions = torch.arange(self.num_codebooks, device=self.output.weight.device)
        self.rope = rope_table(positions, self.config.head_dim, self.rope_base)

    def allocate_cache(self, num_slots: int) -> KVCache:
        """Return a cache for one frame of `num_slots` streams; every frame overwrites it."""
        weight = self.output.weight
        return KVCache.allocate(
            self.config,
            num_slots=num_slots,
            num_positions=self.num_codebooks,
            device=weight.device,
            dtype=weight.dtype,
        )

    def first(self, hidden: Tensor, semantic_code: Tensor, cache: KVCache) -> Tensor:
        """Begin a frame with its first two positions in one causal pass.

        Args:
            hidden: the slow AR's normalised states [B, width]; semantic_code: int64 [B].

        Returns:
            Logits [B, 2, codebook_size]; row 0 means nothing, row 1 is codebook 1's.
        """
        start = hidden if self.project_in is None else self.project_in(hidden)
        return self._run(torch.stack([start, self.embeddings(semantic_code)], dim=1), 0, cache)

    def next(self, code: Tensor, position: int, cache: KVCache) -> Tensor:
        """Return the logits [B, codebook_size] behind the code int64 [B] of `position` >= 2."""
        return self._run(self.embeddings(code).unsqueeze(1), position, cache)[:, 0]

    def _run(self, x: Tensor, start: int, cache: KVCache) -> Tensor:
        """Run x [B, n, width] at positions start.. and return logits [B, n, codebook_size]."""
        end = start + x.shape[1]
        rope = self.rope[start:end].unsqueeze(1)
        hidden_from = torch.ones(x.shape[1], end, dtype=torch.bool, device=x.device)
        hidden_from = hidden_from.triu(start + 1)
        for index, layer in enumerate(self.blocks):
            q, k, v = layer.project(x, rope)
            cache.keys[index, :, :, start:end] = k.transpose(1, 2)
            cache.values[index, :, :, start:end] = v.transpose(1, 2)
            keys, values = cache.keys[index, :, :, :end], cache.values[index, :, :, :end]
            x = layer.finish(x, _frame_attention(q, keys, values, hidden_from))
        logits: Tensor = self.output(rms_norm(x, self.norm.weight, self.norm_eps))
        return logits


def _frame_attention(q: Tensor, keys: Tensor, values: Tensor, hidden_from: Tensor) -> Tensor:
    """Attend within a frame in the working dtype, rounding after every step as trained.

    q is [B, n, H, D], keys and values [B, KV, T, D]; returns [B, n, H * D].
    """
    batch, num, heads, head_dim = q.shape
    kv_heads = keys.shape[1]
    grouped = q.view(batch, num, kv_heads, -1, head_dim).permute(0, 2, 3, 1, 4)
    scores = (grouped @ keys.unsqueeze(2).transpose(-1, -2)) * head_dim**-0.5
    weights = scores.masked_fill(hidden_from, float("-inf")).softmax(-1)
    mixed: Tensor = weights @ values.unsqueeze(2)  # [B, KV, group, n, D]
    return mixed.permute(0, 3, 1, 2, 4).reshape(batch, num, heads * head_dim)
