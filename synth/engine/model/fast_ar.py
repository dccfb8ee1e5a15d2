"""Run the fast AR: the transformer along codebooks that fills one frame's residual codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from synth.engine.model.config import LMConfig
from synth.engine.model.frame_cache import FrameCache, FramePlace
from synth.engine.model.kv_cache import cache_dtype
from synth.engine.model.layers import Block, Embedding, bring_into_form, rms_norm, rope_table
from synth.engine.model.linear import Linear, LinearForm


class FastAR(nn.Module):
    """Hold the fast transformer; `finalize` must run once after its weights are assigned.

    One embedding table and one output matrix serve all codebooks. Position 0 of a frame is the slow
    AR's hidden state, position k the code of codebook k - 1.
    """

    rope: Tensor
    _turns: Tensor  # the rotary table as complex numbers

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        text, audio = config.text_config, config.audio_decoder_config
        self.config = audio
        self.norm_eps, self.rope_base = text.norm_eps, text.rope_base
        self.num_codebooks, self.codebook_size = audio.num_codebooks, audio.vocab_size
        self.project_in: nn.Linear | Linear | None = None
        if audio.dim != text.dim:
            self.project_in = nn.Linear(text.dim, audio.dim)
        self.embeddings = Embedding(audio.vocab_size, audio.dim)
        self.layers = nn.ModuleList(Block(audio, text.norm_eps) for _ in range(audio.n_layer))
        self.norm = nn.RMSNorm(audio.dim)
        self.output: nn.Linear | Linear = nn.Linear(audio.dim, audio.vocab_size, bias=False)

    @property
    def blocks(self) -> Sequence[Block]:
        """Return the layers under their own type."""
        return cast("Sequence[Block]", self.layers)

    def finalize(self, form: LinearForm = LinearForm.PLAIN) -> None:
        """Fuse and pack matrices and build the rotary table of a frame's positions."""
        for layer in self.blocks:
            layer.finalize(form)
        bring_into_form(self, "output", form)
        bring_into_form(self, "project_in", form)
        positions = torch.arange(self.num_codebooks, device=self.norm.weight.device)
        self.rope = rope_table(positions, self.config.head_dim, self.rope_base)
        self._turns = torch.view_as_complex(self.rope)

    def allocate_cache(self, num_slots: int) -> FrameCache:
        """Return a cache for one frame of `num_slots` streams; every frame overwrites it."""
        weight = self.norm.weight
        return FrameCache.allocate(
            self.config,
            num_slots=num_slots,
            num_positions=self.num_codebooks,
            device=weight.device,
            dtype=cache_dtype(weight.device, weight.dtype),
        )

    def first(self, hidden: Tensor, semantic_code: Tensor, cache: FrameCache) -> Tensor:
        """Begin a frame with its first two positions in one causal pass.

        Args:
            hidden: the slow AR's normalised states [B, width]; semantic_code: int64 [B].

        Returns:
            Logits [B, codebook_size] of codebook 1.
        """
        return self.output(self.begin(hidden, semantic_code, cache)[:, 1])

    def begin(self, hidden: Tensor, semantic_code: Tensor, cache: FrameCache) -> Tensor:
        """Return the normalised states [B, 2, width] of a frame's first two positions.

        Arguments as for `first`; the logits of position 0 mean nothing and are left out there.
        """
        start = hidden if self.project_in is None else self.project_in(hidden)
        x = torch.stack([start, self.embeddings(semantic_code)], dim=1)
        rope = self._turns[:2].unsqueeze(1)
        for index, layer in enumerate(self.blocks):
            q, k, v = layer.project(x, rope)
            cache.keys[index, :, :, :2] = k.transpose(1, 2)
            cache.values[index, :, :, :2] = v.transpose(1, 2)
            mixed = [_attend(q[:, at], cache.places[at][index]) for at in (0, 1)]
            x = layer.finish(x, torch.stack(mixed, dim=1))
        return rms_norm(x, self.norm.weight, self.norm_eps)

    def next(self, code: Tensor, position: int, cache: FrameCache) -> Tensor:
        """Return the logits [B, codebook_size] behind the code int64 [B] of `position` >= 2."""
        x = self.embeddings(code)
        rope = self._turns[position : position + 1]
        for layer, place in zip(self.blocks, cache.places[position], strict=True):
            q, k, v = layer.project(x, rope)
            place.key.copy_(k)
            place.value.copy_(v)
            x = layer.finish(x, _attend(q, place))
        return self.output(rms_norm(x, self.norm.weight, self.norm_eps))


def _attend(q: Tensor, place: FramePlace) -> Tensor:
    """Attend with one query per stream, q [B, H, D], up to a place; return [B, H * D] like q.

    Products are computed in the cache's dtype and everything is rounded to q's after every step, as
    the weights were trained.
    """
    batch, heads, head_dim = q.shape
    wide = place.keys.dtype
    # Query heads that share a key head are rows of one product.
    rows = q.to(wide).reshape(place.keys.shape[0], -1, head_dim)
    scores = torch.bmm(rows, place.keys).to(q.dtype).mul_(head_dim**-0.5)
    mixed = torch.bmm(scores.softmax(-1).to(wide), place.values)
    return mixed.to(q.dtype).view(batch, heads * head_dim)
