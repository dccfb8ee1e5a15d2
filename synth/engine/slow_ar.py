"""Run the slow AR: the transformer along time that chooses one semantic token per frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.config import LMConfig
from synth.engine.kv_cache import KVCache
from synth.engine.layers import (
    Block,
    Embedding,
    prefill_attention,
    rms_norm,
    rope_table,
    step_attention,
)
from synth.engine.tokenizer import SpecialIds


class SlowAR(nn.Module):
    """Hold the slow transformer; `finalize` must run once after its weights are assigned."""

    head: Tensor
    head_tokens: Tensor
    codebook_offsets: Tensor
    rope: Tensor

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        text, audio = config.text_config, config.audio_decoder_config
        self.norm_eps, self.head_dim, self.rope_base = text.norm_eps, text.head_dim, text.rope_base
        self.max_seq_len = text.max_seq_len
        self.num_codebooks, self.codebook_size = audio.num_codebooks, audio.vocab_size
        self.embeddings = Embedding(text.vocab_size, text.dim)
        self.codebook_embeddings = Embedding(audio.num_codebooks * audio.vocab_size, text.dim)
        self.layers = nn.ModuleList(Block(text, text.norm_eps) for _ in range(text.n_layer))
        self.norm = nn.RMSNorm(text.dim)
        self.output = (
            None if text.tie_word_embeddings else nn.Linear(text.dim, text.vocab_size, bias=False)
        )

    @property
    def blocks(self) -> Sequence[Block]:
        """Return the layers under their own type."""
        return cast("Sequence[Block]", self.layers)

    def finalize(self, special: SpecialIds) -> None:
        """Fuse matrices, cut the head to the rows that may be drawn, build the rotary table.

        `head_tokens` int64 [R] maps a row of the logits to its token id, in ascending order so
        that equal logits stand in the order they have in the whole vocabulary.
        """
        self.special = special
        for layer in self.blocks:
            layer.feed_forward.fuse()
        table = self.embeddings if self.output is None else self.output
        device = table.weight.device
        ids = sorted({*range(special.semantic_begin, special.semantic_end + 1), special.im_end})
        self.head_tokens = torch.tensor(ids, device=device)
        self.head = table.weight[self.head_tokens].clone()
        self.output = None  # no other row is ever needed
        codebooks = torch.arange(self.num_codebooks, device=device)
        self.codebook_offsets = codebooks * self.codebook_size
        positions = torch.arange(self.max_seq_len, device=device)
        self.rope = rope_table(positions, self.head_dim, self.rope_base)

    def is_semantic(self, tokens: Tensor) -> Tensor:
        """Say for each token id whether it is a semantic token, by the id alone."""
        return (tokens >= self.special.semantic_begin) & (tokens <= self.special.semantic_end)

    def embed(self, columns: Tensor) -> Tensor:
        """Return the input vectors [..., width] of columns int64 [..., 1 + K].

        Codes count only beside a semantic token; there the sum of all embeddings is scaled.
        """
        tokens, codes = columns[..., 0], columns[..., 1:]
        text: Tensor = self.embeddings(tokens)
        audio: Tensor = self.codebook_embeddings(codes + self.codebook_offsets).sum(dim=-2)
        scaled = (text + audio) / math.sqrt(self.num_codebooks + 1)
        return torch.where(self.is_semantic(tokens).unsqueeze(-1), scaled, text)

    def step(self, columns: Tensor, position: Tensor, cache: KVCache, *, length: int) -> Tensor:
        """Advance every stream of the cache by one column.

        Args:
            columns: int64 [B, 1 + K]; position: int64 [B], where each is written.
            length: attend over the first `length` positions; above every live position.

        Returns:
            The normalised hidden states [B, width].
        """
        rope = self.rope[position].unsqueeze(1)
        visible = torch.arange(length, device=position.device) <= position.unsqueeze(1)
        x = self.embed(columns)
        for index, layer in enumerate(self.blocks):
            q, k, v = layer.project(x, rope)
            cache.write_step(index, position, k, v)
            keys, values = cache.keys[index, :, :, :length], cache.values[index, :, :, :length]
            x = layer.finish(x, step_attention(q, keys, values, visible))
        return rms_norm(x, self.norm.weight, self.norm_eps)

    def prefill(
        self,
        columns: Tensor,
        lengths: Sequence[int],
        slots: Sequence[int],
        cache: KVCache,
        *,
        starts: Sequence[int] | None = None,
    ) -> Tensor:
        """Run prompts through in one pass and fill their slots of the cache.

        Args:
            columns: int64 [N, S, 1 + K], padded on the right (what follows cannot be seen).
            lengths: columns of each prompt; slots: where each goes.
            starts: positions each slot holds already (a copied prefix); None means none do.

        Returns:
            The normalised hidden states [N, S, width]; rows beyond a prompt's length are padding.
        """
        starts = starts or [0] * len(slots)
        offsets = torch.tensor(starts, device=columns.device).unsqueeze(1)
        position = offsets + torch.arange(columns.shape[1], device=columns.device)
        # Padding may reach past the last position; its rows are never read.
        rope = self.rope[position.clamp(max=self.max_seq_len - 1)].unsqueeze(2)
        total = max(start + length for start, length in zip(starts, lengths, strict=True))
        mask = None
        if any(starts):
            mask = torch.arange(total, device=columns.device) <= position.unsqueeze(-1)
            mask = mask.unsqueeze(1)
        x = self.embed(columns)
        for index, layer in enumerate(self.blocks):
            q, k, v = layer.project(x, rope)
            for row, (slot, start, size) in enumerate(zip(slots, starts, lengths, strict=True)):
                cache.write_prompt(index, slot, start, k[row, :size], v[row, :size])
            if mask is None:
                keys, values = k.transpose(1, 2), v.transpose(1, 2)
            else:
                chosen = list(slots)
                keys = cache.keys[index, chosen, :, :total]
                values = cache.values[index, chosen, :, :total]
            x = layer.finish(x, prefill_attention(q, keys, values, mask))
        return rms_norm(x, self.norm.weight, self.norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., R] of the rows that may be drawn, in the model's dtype."""
        return F.linear(hidden, self.head)
