"""Hold the fast path to an eager float32 one, and strict mode to itself among any neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.bench.models.presets import preset_dual_ar, preset_models
from lab.bench.models.shapes import preset
from lab.bench.stepping import has_kernels, measure_agreement, random_prompt, without_kernels
from lab.gpu_check.steps import Context, Found, Step
from synth.contract import Reference, RenderSpec, Sampling, SegmentAudio
from synth.engine import Engine, EngineConfig
from synth.engine.model.decode import step_tensors
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.prefill import SlotStart, start_slots

FORCED_FRAMES = {"cuda": 128, "cpu": 24}
FORCED_COLUMNS = (
    "kernels",
    "frames",
    "logits_error",
    "largest_error",
    "top1_agreement",
    "cache_error",
    "same_tokens",
    "same_codes",
)
# How far bfloat16 itself is from float32 is a matter of the format and of the weights: over 36
# layers of random ones PyTorch's own steps are 5 % off. What is judged is what kernels add to that:
# their cache's error over the one of PyTorch's bfloat16, both against float32. The equality of the
# most likely token is told and not judged, as random logits lie close together.
ALLOWED_RATIO = 1.25

STRICT_SLOTS, STRICT_FRAMES, STRICT_POSITIONS = 8, 12, 1024
STRICT_COLUMNS = ("arrangement", "codes_equal", "audio_equal")
STREAMS, PROMPT = 2, 8


def check_forced(context: Context) -> Found:
    """Run the same speech through a plain float32 model and the fast path's; compare.

    Logits are compared of PyTorch's own steps. What kernels compute is compared by what it leaves:
    the last layer's keys and values of every position, and the tokens and codes taken.
    """
    frames = FORCED_FRAMES[context.device.type]
    shape, device = preset(context.preset), context.device
    exact = without_kernels(preset_dual_ar(shape, device=device, dtype="float32"))
    model = preset_dual_ar(shape, device=device, dtype="bfloat16")
    plain = without_kernels(model)
    agreement = measure_agreement(plain, exact, frames=frames, seed=0)
    expected = forced_steps(exact, frames=frames)
    rows: list[dict[str, Any]] = [{"kernels": "off", **asdict(agreement)}]
    rows[0] |= expected.compared(forced_steps(plain, frames=frames))
    if has_kernels(model):
        rows.append({"kernels": "on"} | expected.compared(forced_steps(model, frames=frames)))
    found = Found(rows=[{**row, "frames": frames} for row in rows], columns=FORCED_COLUMNS)
    plain_error = rows[0]["cache_error"]
    found.mismatches += [
        f"kernels {row['kernels']}: cache_error {row['cache_error']:.3g}, more than "
        f"{ALLOWED_RATIO} times PyTorch's own {plain_error:.3g}"
        for row in rows
        if not row["cache_error"] <= ALLOWED_RATIO * plain_error  # a NaN is no agreement either
    ]
    if not has_kernels(model):
        found.notes.append("this device or this engine computes no step with kernels")
    return found


def check_strict(context: Context) -> Found:
    """Render one segment alone and among others in several arrangements: no bit may differ."""
    dtype = "bfloat16" if context.on_gpu else "float32"
    config = EngineConfig(
        checkpoint=Path(context.preset),  # only a name here: nothing is read from it
        device=str(context.device),
        dtype=dtype,
        slots=STRICT_SLOTS,
        max_positions=STRICT_POSITIONS,
        strict=True,
    )
    models = preset_models(context.preset, device=context.device, dtype=dtype)
    found, rows = Found(columns=STRICT_COLUMNS), []
    engine = Engine(config, models)
    try:
        alone = engine.render(_mine())
        for name, place, voice_frames in (
            ("first of all slots", 0, 10),
            ("last of all slots", STRICT_SLOTS - 1, 10),
            ("among long neighbours", 3, 300),
        ):
            others = _others(STRICT_SLOTS - 1, voice_frames)
            take = _among(engine, [*others[:place], _mine(), *others[place:]], place)
            rows.append(_row(name, take, alone))
        running = [engine.submit(one) for one in _others(5, 300)]
        running[0].result(300)
        rows.append(_row("joining midway", engine.render(_mine()), alone))
        for future in running:
            future.result(300)
    finally:
        engine.close()
    rows.append(_row("another engine", _again(config, context), alone))
    found.rows = rows
    found.mismatches = [
        f"{row['arrangement']}: other bits" for row in rows if row["codes_equal"] is not True
    ]
    found.mismatches += [
        f"{row['arrangement']}: other audio" for row in rows if not row["audio_equal"]
    ]
    return found


def _again(config: EngineConfig, context: Context) -> SegmentAudio:
    """Return the segment of an engine that was made anew."""
    models = preset_models(context.preset, device=context.device, dtype=config.dtype)
    engine = Engine(config, models)
    try:
        return engine.render(_mine())
    finally:
        engine.close()


def _among(engine: Engine, specs: Sequence[RenderSpec], place: int) -> SegmentAudio:
    futures = [engine.submit(spec) for spec in specs]
    return [future.result(300) for future in futures][place]


def _row(name: str, take: SegmentAudio, alone: SegmentAudio) -> dict[str, object]:
    return {
        "arrangement": name,
        "codes_equal": bool(np.array_equal(take.codes, alone.codes)),
        "audio_equal": bool(np.array_equal(take.audio, alone.audio)),
    }


def _mine() -> RenderSpec:
    sampling = Sampling(seed=77, max_frames=STRICT_FRAMES)
    return RenderSpec("The same words each time.", _voice(1, 40), sampling)


def _others(number: int, voice_frames: int) -> list[RenderSpec]:
    """Return different requests of three voices and different lengths."""
    return [
        replace(
            _mine(),
            text=f"Sentence {n} " * (1 + n % 4),
            reference=_voice(n % 3, voice_frames + n % 3),
            sampling=Sampling(seed=n, max_frames=3 + n % 12),
        )
        for n in range(number)
    ]


def _voice(seed: int, frames: int) -> Reference:
    codes = np.random.default_rng(seed).integers(0, 64, (10, frames), dtype=np.int16)
    return Reference("A voice.", codes)


STEPS = (Step("strict", 30, check_strict), Step("forced", 40, check_forced))


@dataclass(frozen=True, slots=True, eq=False)
class Forced:
    """Hold what steps left: `cache` float32 [2, B, KV, S, D], the last layer's keys and values.

    `columns` int64 [F, B, 1 + K] are the most likely tokens and codes, each frame's codes behind
    that frame's own token; what goes into the next step is given and not these.
    """

    cache: Tensor
    columns: Tensor

    def compared(self, other: Forced) -> dict[str, float]:
        """Return how far another model's steps are from these.

        `cache_error` is the difference's norm over the norm; `same_tokens` the share of frames with
        the same token; `same_codes` of codes that are the same where all before them were.
        """
        error = float((other.cache - self.cache).norm() / self.cache.norm())
        same = self.columns == other.columns
        so_far = same.long().cumprod(-1).bool()
        reached = so_far[..., 1:-1]  # of the codes behind the first, which is the token's own
        codes = same[..., 2:][reached]
        return {
            "cache_error": error,
            "same_tokens": float(same[..., 0].double().mean()),
            "same_codes": float(codes.double().mean()) if codes.numel() else 0.0,
        }


@torch.inference_mode()
def forced_steps(model: DualAR, *, frames: int, seed: int = 0) -> Forced:
    """Run random speech through whole decode steps, as the engine computes them."""
    positions = PROMPT + frames + 1
    state = DecodeState.allocate(model, num_slots=STREAMS, max_positions=positions)
    sampling = Sampling(top_k=1, max_frames=frames + 1)
    starts = []
    for slot in range(STREAMS):
        state.assign(slot, sampling, prompt_positions=PROMPT)
        starts.append(SlotStart(slot, random_prompt(model, PROMPT, seed=seed + slot)))
    start_slots(model, state, starts)
    given = _speech(model, frames, seed).to(model.device)
    made = []
    for frame in range(frames):
        state.columns.copy_(given[frame])
        output = step_tensors(model, state, length=state.cache.num_positions)
        state.note_step()
        made.append(output.columns.clone())
    end = PROMPT - 1 + frames
    cache = torch.stack(
        [each[-1, :, :, :end].float() for each in (state.cache.keys, state.cache.values)]
    )
    return Forced(cache, torch.stack(made))


def _speech(model: DualAR, frames: int, seed: int) -> Tensor:
    """Return columns of speech, int64 [F, B, 1 + K]."""
    generator = torch.Generator().manual_seed(seed)
    shape = (frames, STREAMS, model.fast.num_codebooks)
    codes = torch.randint(model.fast.codebook_size, shape, generator=generator)
    return torch.cat([codes[..., :1] + model.special.semantic_begin, codes], dim=-1)
