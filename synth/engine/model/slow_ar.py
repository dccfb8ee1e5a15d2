"""Run the slow AR: the transformer along time that chooses one semantic token per frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from synth.engine.model.attention import (
    prefill_attention,
    prefill_mask,
    split_attention,
    step_attention,
    step_mask,
)
from synth.engine.model.config import LMConfig
from synth.engine.model.kv_cache import KVCache
from synth.engine.model.layers import Block, Embedding, rms_norm, rope_table
from synth.engine.model.linear import Linear, LinearForm, make_linear
from synth.engine.tokenizer import SpecialIds
from synth.engine.transfer import to_device


@dataclass(frozen=True, slots=True)
class Span:
    """Name a part of a stream: `length` positions behind `start` that its slot's cache holds."""

    slot: int
    start: int
    length: int


class SlowAR(nn.Module):
    """Hold the slow transformer; `finalize` must run once after its weights are assigned."""

    head: Linear
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

    def finalize(self, special: SpecialIds, form: LinearForm = LinearForm.PLAIN) -> None:
        """Fuse and pack matrices, keep the rows that may be drawn, build the rotary table.

        `head_tokens` int64 [R] maps a row of the logits to its token id, in ascending order so
        that equal logits stand in the order they have in the whole vocabulary.
        """
        self.special = special
        for layer in self.blocks:
            layer.finalize(form)
        table = self.embeddings if self.output is None else self.output
        device = table.weight.device
        ids = sorted({*range(special.semantic_begin, special.semantic_end + 1), special.im_end})
        self.head_tokens = torch.tensor(ids, device=device)
        self.head = make_linear(table.weight[self.head_tokens], None, form)
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

    def step(
        self,
        columns: Tensor,
        position: Tensor,
        cache: KVCache,
        *,
        length: int,
        in_splits: bool = False,
    ) -> Tensor:
        """Advance every stream of the cache by one column.

        Args:
            columns: int64 [B, 1 + K]; position: int64 [B], where each is written.
            length: attend over the first `length` positions; above every live position.
            in_splits: attend so that a stream's result does not depend on `length`.

        Returns:
            The normalised hidden states [B, width].
        """
        rope = torch.view_as_complex(self.rope[position]).unsqueeze(1)
        mask, rows = step_mask(position, length), cache.rows(position)
        attend = split_attention if in_splits else step_attention
        x = self.embed(columns)
        for index, (layer, live) in enumerate(zip(self.blocks, cache.live(length), strict=True)):
            q, k, v = layer.project(x, rope)
            cache.write_step(index, rows, k, v)
            x = layer.finish(x, attend(q, *live, mask))
        return rms_norm(x, self.norm.weight, self.norm_eps)

    def prefill(
        self,
        columns: Tensor,
        spans: Sequence[Span],
        cache: KVCache,
        *,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Run parts of several streams through in one pass, unpadded, and fill the cache.

        Every part attends to what its stream's cache holds before it and, causally, to itself.

        Args:
            columns: int64 [N, 1 + K], those of the first part, then those of the next.
            spans: the parts, of N columns together, each of another stream.
            rows: int64 [n], which states are wanted; None means all.

        Returns:
            The normalised hidden states [N, width], or [n, width].
        """
        rope = torch.view_as_complex(self.rope[_positions(spans, columns.device)]).unsqueeze(1)
        masks = [prefill_mask(span.length, span.start, cache.keys) for span in spans]
        lengths = [span.length for span in spans]
        x = self.embed(columns)
        last = len(self.blocks) - 1
        for index, layer in enumerate(self.blocks):
            q, k, v = layer.project(x, rope)
            parts = zip(
                spans, masks, *(torch.split(each, lengths) for each in (q, k, v)), strict=True
            )
            mixed = torch.cat([self._attend(cache, index, *part) for part in parts])
            if index == last and rows is not None:
                x, mixed = x[rows], mixed[rows]
            x = layer.finish(x, mixed)
        return rms_norm(x, self.norm.weight, self.norm_eps)

    def _attend(
        self,
        cache: KVCache,
        layer: int,
        span: Span,
        mask: Tensor | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
    ) -> Tensor:
        """Write a part's keys and values and attend with its queries: [S, H, D] to [S, H * D]."""
        cache.write_prompt(layer, span.slot, span.start, k, v)
        end = span.start + span.length
        keys, values = (each[layer, span.slot, :, :end] for each in (cache.keys, cache.values))
        return prefill_attention(q[None], keys[None], values[None], mask)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., R] of the rows that may be drawn, in the model's dtype."""
        return self.head(hidden)


def _positions(spans: Sequence[Span], device: torch.device) -> Tensor:
    """Return the position of every column of the parts, int64 [N]."""
    return to_device(torch.cat([torch.arange(s.start, s.start + s.length) for s in spans]), device)
