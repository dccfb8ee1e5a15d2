"""Run the slow AR along time and the fast AR along codebooks, joined to one immutable model."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.device import to_device
from synth.engine.errors import CheckpointError
from synth.engine.model.config import LMConfig, SpecialIds
from synth.engine.model.kv_cache import FrameCache, FramePlace, KVCache
from synth.engine.model.layers import (
    Block,
    Embedding,
    bring_into_form,
    prefill_attention,
    prefill_mask,
    rms_norm,
    rope_table,
    split_attention,
    step_attention,
    step_mask,
)
from synth.engine.model.linear import Linear, LinearForm, ScaledLinear, make_linear
from synth.engine.model.sampling import SLOW_DRAWS

if TYPE_CHECKING:
    from synth.engine.native.frame import NativeFrames

KERNELS = "synth.engine.kernels.frame"  # it imports triton, which is not everywhere
NATIVE = "synth.engine.native.frame"  # it imports this module
HEAD_STEP = 16  # of its rows: libraries have slow kernels for logits that begin at odd addresses


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
        return cast("Sequence[Block]", self.layers)

    def finalize(self, form: LinearForm = LinearForm.PLAIN) -> None:
        """Fuse and pack matrices and build the rotary table of a frame's positions."""
        for layer in self.blocks:
            layer.finalize(form)
        bring_into_form(self, form, "output", "project_in")
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
            dtype=weight.dtype,
        )

    def first(self, hidden: Tensor, semantic_code: Tensor, cache: FrameCache) -> Tensor:
        """Return the logits [B, codebook_size] of codebook 1; arguments as for `begin`."""
        return self.output(self.begin(hidden, semantic_code, cache)[:, 1])

    def begin(self, hidden: Tensor, semantic_code: Tensor, cache: FrameCache) -> Tensor:
        """Return the normalised states [B, 2, width] of a frame's first two positions.

        They go through in one causal pass: the slow AR's normalised states [B, width], and a code
        int64 [B]. The logits of position 0 mean nothing.
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


@dataclass(frozen=True, slots=True)
class Span:
    """Name a part of a stream: `length` positions behind `start` that its slot's cache holds."""

    slot: int
    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


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
        rows = table.weight[self.head_tokens]
        # The compiled form fills up its matrices, and takes a row for each token.
        missing = 0 if form.is_native else -len(ids) % HEAD_STEP
        self.head = make_linear(F.pad(rows, (0, 0, 0, missing)), None, form)
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
        mask = step_mask(position, length)
        rows = cache.rows(position, torch.arange(position.shape[0], device=position.device))
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
        with_states: bool = True,
    ) -> Tensor:
        """Run parts of several streams through in one pass, unpadded, and fill the cache.

        Every part attends to what its stream's cache holds before it and, causally, to itself.

        Args:
            columns: int64 [N, 1 + K], those of the first part, then those of the next.
            spans: the parts, of N columns together, each of another stream.
            with_states: compute what nothing in the cache depends on as well.

        Returns:
            The normalised hidden states [N, width], or none of them, [0, width].
        """
        lengths = [span.length for span in spans]
        positions = torch.cat([torch.arange(span.start, span.end) for span in spans])
        slots = torch.tensor([span.slot for span in spans]).repeat_interleave(torch.tensor(lengths))
        masks = [prefill_mask(span.length, span.start, cache.keys) for span in spans]

        def attend(index: int, q: Tensor) -> Tensor:
            mixed = []
            for span, mask, part in zip(spans, masks, torch.split(q, lengths), strict=True):
                seen = (index, slice(span.slot, span.slot + 1), slice(None), slice(span.end))
                keys, values = cache.keys[seen], cache.values[seen]
                mixed.append(prefill_attention(part[None], keys, values, mask)[0])
            return torch.cat(mixed)

        positions, slots = (to_device(each, columns.device) for each in (positions, slots))
        return self._run_prompts(columns, positions, slots, cache, attend, with_states)

    def fill_slot(self, columns: Tensor, positions: Tensor, slots: Tensor, cache: KVCache) -> None:
        """Run one stream's columns through in shapes that say nothing of it, and fill its cache.

        Args:
            columns: int64 [N, 1 + K]; positions: int64 [N], -1 where there is nothing to be run.
            slots: int64 [N], of which the first is the stream's.
        """
        # No stream that runs reads the cache's last position: there goes what is nothing.
        positions = positions.where(positions >= 0, cache.num_positions - 1)
        slots = slots[:1]
        mask = step_mask(positions, cache.num_positions)[:, 0, 0].to(cache.keys.dtype)

        def attend(index: int, q: Tensor) -> Tensor:
            keys, values = (
                each[index].index_select(0, slots) for each in (cache.keys, cache.values)
            )
            return prefill_attention(q[None], keys, values, mask)[0]

        self._run_prompts(columns, positions, slots, cache, attend, with_states=False)

    def _run_prompts(
        self,
        columns: Tensor,
        positions: Tensor,
        slots: Tensor,
        cache: KVCache,
        attend: Callable[[int, Tensor], Tensor],
        with_states: bool,
    ) -> Tensor:
        """Run columns through all layers, into the cache at each one's slot and position.

        `attend` maps a layer's number and queries [N, H, D] to [N, H * D].
        """
        rope = torch.view_as_complex(self.rope[positions]).unsqueeze(1)
        rows, x = cache.rows(positions, slots), self.embed(columns)
        last = len(self.blocks) - 1
        for index, layer in enumerate(self.blocks):
            q, k, v = layer.project(x, rope)
            cache.write_step(index, rows, k, v)
            if index == last and not with_states:
                return x[:0]
            x = layer.finish(x, attend(index, q))
        return rms_norm(x, self.norm.weight, self.norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.head(hidden)[..., : len(self.head_tokens)]


class DualAR(nn.Module):
    """Hold both transformers, the configuration they came from and the special token ids."""

    def __init__(self, config: LMConfig, special: SpecialIds) -> None:
        """Build the modules; under `torch.device("meta")` this takes no memory.

        Raises:
            CheckpointError: the tokenizer's ids do not fit the model's tables.
        """
        super().__init__()
        size = config.audio_decoder_config.vocab_size
        if special.num_semantic != size:
            raise CheckpointError(
                f"tokenizer.json has {special.num_semantic} semantic tokens, but the model has "
                f"codebooks of {size}: a token is missing, or the two files belong to different "
                "models. Download the checkpoint again."
            )
        if max(special.semantic_end, special.im_end) >= config.text_config.vocab_size:
            raise CheckpointError(
                "tokenizer.json has ids beyond the model's vocab_size of "
                f"{config.text_config.vocab_size}; the two files belong to different models. "
                "Download the checkpoint again."
            )
        self.config, self.special = config, special
        self.form = self.fast_form = LinearForm.PLAIN
        self.slow, self.fast = SlowAR(config), FastAR(config)
        self.has_kernels = False
        self.native: NativeFrames | None = None

    @property
    def device(self) -> torch.device:
        return self.slow.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.slow.norm.weight.dtype

    @property
    def num_draws(self) -> int:
        """Return the draws of a frame: the slow AR's, then one for each codebook it leaves."""
        return SLOW_DRAWS + self.fast.num_codebooks - 1

    @property
    def weight_format(self) -> str:
        """Return what the matrices are kept in, as TTS_DTYPE calls it."""
        if eight := self.form.eight_bits:
            return eight if self.fast_form.eight_bits else f"{eight}-slow"
        return str(self.dtype).removeprefix("torch.")

    @property
    def has_own_frames(self) -> bool:
        """Return whether our own kernels compute decode steps: Triton's, or compiled code's."""
        return self.has_kernels or self.native is not None

    def finalize(
        self, form: LinearForm = LinearForm.PLAIN, fast_form: LinearForm | None = None
    ) -> None:
        """Prepare assigned weights for use, the matrices in `form`; call once.

        Args:
            fast_form: of the fast AR's matrices; None means `form`.
        """
        self.form, self.fast_form = form, fast_form or form
        self.requires_grad_(False)
        self.eval()
        self.slow.finalize(self.special, form)
        self.fast.finalize(self.fast_form)
        if form.is_native:
            self.native = importlib.import_module(NATIVE).NativeFrames(self)

    def use_kernels(self) -> None:
        """Let kernels compute the decode steps of a finalized model.

        Raises:
            CheckpointError: its layers are of a kind that no kernel is written for.
        """
        frame = importlib.import_module(KERNELS)  # a triton that cannot be imported shows now
        if not frame.can_make_frames(self):
            raise CheckpointError(
                "There are no kernels for this model's layers; set TTS_ENGINE_WITHOUT=kernels."
            )
        for module in self.modules():
            for linear in vars(module).values():
                if isinstance(linear, ScaledLinear):
                    linear.multiply = frame.multiply
        self.has_kernels = True
