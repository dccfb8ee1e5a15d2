"""Hold the fast path to an eager float32 one, and strict mode to itself among any neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from lab.bench.agreement import measure_agreement
from lab.bench.presets import preset_dual_ar, preset_models
from lab.bench.stepping import has_kernels, without_kernels
from lab.gpu_check.forced import forced_steps
from lab.gpu_check.steps import Context, Found, Step
from synth.contract import Reference, RenderSpec, Sampling, SegmentAudio
from synth.engine import Engine, EngineConfig
from synth.engine.presets.shapes import preset

FORCED_FRAMES = {"cuda": 512, "cpu": 24}
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
# Of the difference's norm over the logits' norm. With random weights bfloat16 is some 1 % off;
# the equality of the most likely token is told and not judged, as random logits lie close together.
ALLOWED_ERROR = 0.05

STRICT_SLOTS, STRICT_FRAMES, STRICT_POSITIONS = 8, 12, 1024
STRICT_COLUMNS = ("arrangement", "codes_equal", "audio_equal")


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
    for row in rows:
        errors = {key: row[key] for key in ("logits_error", "cache_error") if key in row}
        found.mismatches += [
            f"kernels {row['kernels']}: {name} {error:.3g}, more than {ALLOWED_ERROR}"
            for name, error in errors.items()
            if not error <= ALLOWED_ERROR
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


STEPS = (
    Step("strict", 50, check_strict),
    Step("forced", 45, check_forced),
)
