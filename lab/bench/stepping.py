"""Drive the engine's decode step for a benchmark: the one place that knows the core's calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lab.bench.report import BenchFailedError
from lab.golden.noise import CounterNoise
from synth.contract import Sampling
from synth.engine.model.decode import decode_step, step_tensors
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.kv_cache import KVCache
from synth.engine.model.prefill import PrefixCache, SlotStart, start_slots

PREFILL_POSITIONS = 4096  # that go through the model at once
_TEXT_SHARE = 3  # every third position of a made-up prompt is text, the others are speech


class DecodeBatch:
    """Hold a full batch of running streams and step it; `rewind` starts the same frames again."""

    def __init__(
        self,
        model: DualAR,
        *,
        batch: int,
        context: int,
        frames: int,
        seed: int,
        top_k: int = 30,
        graphs: bool = False,
        positions: int = 0,
        shared: int = 0,
    ) -> None:
        """Prefill `batch` different prompts, so that `frames` frames have a mean context of that.

        Args:
            context: the positions attended to, the prompt's and the speech's.
            graphs: replay a captured step; on CUDA alone.
            positions: of each slot; at least what the frames take.
            shared: of a prompt's positions, those that all streams begin with alike, as behind one
                kept voice; fewer than the prompt has.
        """
        self.model, self.batch, self.frames = model, batch, frames
        self.prompt_positions = prompt_positions(context, frames)
        needed = self.prompt_positions + frames + 1
        self.state = DecodeState.allocate(
            model, num_slots=batch, max_positions=max(needed, positions)
        )
        self.graph_nodes: int | None = None
        self._step: Callable[[], object] = partial(decode_step, model, self.state)
        if graphs:  # while the slots are free: a capture runs the step a few times
            self._step = self._captured_step()
        prefix = random_prompt(model, shared, seed=seed + batch) if shared else None
        own = self.prompt_positions - shared
        starts = [
            SlotStart(slot, random_prompt(model, own, seed=seed + slot), prefix, "shared")
            for slot in range(batch)
        ]
        for slot in range(batch):
            sampling = Sampling(seed=seed + slot, top_k=top_k, max_frames=frames + 1)
            self.state.assign(slot, sampling, prompt_positions=self.prompt_positions)
        at_once = max(PREFILL_POSITIONS // self.prompt_positions, 1)
        kept = PrefixCache(self.state.cache.keys.nbytes * 2)
        for start in range(0, batch, at_once):
            start_slots(model, self.state, starts[start : start + at_once], kept)
        decode_step(model, self.state)  # the first frames, which are not among those measured
        self._start = _copy_state(self.state)

    @property
    def cache_length(self) -> int:
        """Return the positions that each stream's cache has room for."""
        return self.state.max_positions

    def rewind(self) -> None:
        """Put the streams back to where their prompts ended; caches keep what is written anew."""
        for name, value in self._start.items():
            if isinstance(value, Tensor):
                getattr(self.state, name).copy_(value)
            else:
                getattr(self.state, name)[:] = value

    def decode(self) -> int:
        """Make the frames of every stream; return how many of them are finished ones.

        Raises:
            BenchFailedError: a stream stopped on the way: fewer frames were made than steps.
        """
        before = self.state.frame.clone()
        for _ in range(self.frames):
            self._step()
        made = self.state.frame - before
        if bool((made != self.frames).any()):
            raise BenchFailedError(
                f"Streams made {made.tolist()} frames instead of {self.frames} each."
            )
        return int(made.sum())

    def _captured_step(self) -> Callable[[], None]:
        """Capture the step over all positions of the slots; return what replays it."""
        from synth.engine.model.decode import CudaGraphs

        length = self.state.cache.num_positions
        run = partial(step_tensors, self.model, self.state, length=length)
        captured = CudaGraphs(self.model.device).capture(run)
        self.graph_nodes = captured.num_nodes

        def step() -> None:
            captured.replay()
            self.state.note_step()

        return step


class PromptRun:
    """Hold one prompt whose first `start` positions are cached, and run it over and over."""

    def __init__(self, model: DualAR, columns: Tensor, *, start: int, seed: int) -> None:
        """Allocate one slot, and compute the positions that are to be cached."""
        self.model, self.columns = model, columns
        positions = columns.shape[1]
        self.state = DecodeState.allocate(
            model, num_slots=1, max_positions=positions + 1, noise=CounterNoise()
        )
        self._sampling = Sampling(seed=seed, max_frames=1)
        self._kept = PrefixCache(self.state.cache.keys.nbytes * 2)
        self._start = SlotStart(0, columns[:, start:], columns[:, :start] if start else None, "it")
        self.prepare()
        self.run()

    def prepare(self) -> None:
        """Free the slot and give it to the prompt again."""
        self.state.release(0)
        self.state.assign(0, self._sampling, prompt_positions=self.columns.shape[1])

    def run(self) -> int:
        """Copy the cached positions, compute the others and draw the first frame; return 1."""
        start_slots(self.model, self.state, [self._start], self._kept)
        decode_step(self.model, self.state)
        return 1


def has_kernels(model: DualAR) -> bool:
    """Return whether the model's steps are computed with our own kernels."""
    return bool(getattr(model, "has_kernels", False))


def without_kernels(model: DualAR) -> DualAR:
    """Return the same model, with the very same weights, whose steps PyTorch alone computes.

    Products of matrices in 8 bits excepted, of which PyTorch has none.
    """
    plain = copy(model)
    plain.has_kernels = False
    return plain


def prompt_positions(context: int, frames: int) -> int:
    """Return the prompt's length that gives `frames` frames a mean context of `context`."""
    return max(context - frames // 2, 1)


def random_prompt(model: DualAR, positions: int, *, seed: int) -> Tensor:
    """Return columns int64 [1 + K, S] of speech and text by turns, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    size = model.fast.codebook_size
    columns = torch.randint(
        size, (1 + model.slow.num_codebooks, positions), generator=generator, dtype=torch.int64
    )
    columns[0] = columns[1] + model.special.semantic_begin
    text = torch.arange(positions) % _TEXT_SHARE == 0
    letters = torch.randint(256, (positions,), generator=generator)
    columns[:, text] = 0
    columns[0, text] = letters[text]
    return columns


def _copy_state(state: DecodeState) -> dict[str, Any]:
    """Return copies of a state's tensors and lists, its caches excepted."""
    copies: dict[str, Any] = {}
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Tensor):
            copies[field.name] = value.clone()
        elif isinstance(value, list):
            copies[field.name] = list(value)
    return copies


STREAMS = 2


@dataclass(frozen=True, slots=True)
class Agreement:
    """Hold what a forced run found: both models read the same columns and nothing is drawn.

    `logits_error` is the difference's norm as a share of the logits' norm, of both transformers;
    `largest_error` the largest difference of a single logit; `top1_agreement` the share of rows
    whose most likely token or code is the same.
    """

    logits_error: float
    largest_error: float
    top1_agreement: float


@torch.inference_mode()
def measure_agreement(
    model: DualAR, exact: DualAR, *, frames: int, seed: int, streams: int = STREAMS
) -> Agreement:
    """Run random speech of some streams through both models by frames and compare all logits."""
    found, expected = (
        _forced_logits(one, frames=frames, seed=seed, streams=streams) for one in (model, exact)
    )
    difference = sum(float((a - b).square().sum()) for a, b in zip(found, expected, strict=True))
    size = sum(float(b.square().sum()) for b in expected)
    pairs = zip(found, expected, strict=True)
    same = torch.cat([(a.argmax(-1) == b.argmax(-1)).flatten() for a, b in pairs])
    largest = max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))
    return Agreement((difference / size) ** 0.5, largest, float(same.float().mean()))


def _forced_logits(model: DualAR, *, frames: int, seed: int, streams: int) -> Sequence[Tensor]:
    """Return the slow logits [frames, B, R] and the fast ones [frames, K - 1, B, codes]."""
    slow, fast = model.slow, model.fast
    generator = torch.Generator().manual_seed(seed)
    shape = (frames, streams, fast.num_codebooks)
    codes = torch.randint(fast.codebook_size, shape, generator=generator).to(model.device)
    columns = torch.cat([codes[..., :1] + model.special.semantic_begin, codes], dim=-1)
    cache = KVCache.allocate(
        model.config.text_config,
        num_slots=streams,
        num_positions=frames,
        device=model.device,
        dtype=model.dtype,
    )
    frame_cache = fast.allocate_cache(streams)
    slow_logits, fast_logits = [], []
    for frame in range(frames):
        position = torch.full((streams,), frame, device=model.device)
        hidden = slow.step(columns[frame], position, cache, length=frames)
        slow_logits.append(slow.logits(hidden).float())
        rows = [fast.first(hidden, codes[frame, :, 0], frame_cache)]
        for codebook in range(2, fast.num_codebooks):
            rows.append(fast.next(codes[frame, :, codebook - 1], codebook, frame_cache))
        fast_logits.append(torch.stack(rows).float())
    return torch.stack(slow_logits), torch.stack(fast_logits)
