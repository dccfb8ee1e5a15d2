"""Run a toy of every stage, end to end, and require that each lowers its loss."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from lab.training.arguments import STAGES
from lab.training.plan import settle_plan
from lab.training.run_folder import RunFolder
from lab.training.stages import TRAINED, Options, run_stage
from synth.contract import Reference, RenderSpec, Sampling
from synth.engine import Engine, EngineConfig

_SETUP_MINUTES = 0.5  # for data, codebooks and export, which have no budget
# What must fall; `loss` is no measure, for its weights change on the way.
_WATCHED = {
    "encoder": ("lost", "state"),
    "decoder": ("mel", "wave"),
    "lm": ("semantic", "residual", "attention"),
}
_FALLEN = 0.97  # the last losses as a share of the first


def run_check(minutes: float, report: Callable[[str], None]) -> int:
    """Return 0 when every loss has fallen and the checkpoint speaks in the engine, else 1."""
    with tempfile.TemporaryDirectory(prefix="train-demo-") as name:
        run = RunFolder(Path(name))
        plan = settle_plan(run, "toy", frozen_blocks=None)
        each = max(minutes - _SETUP_MINUTES, 0.3) / len(TRAINED)
        options = Options(torch.device("cpu"), minutes=each)
        good = True
        for stage in STAGES:
            run_stage(stage, run, plan, options, report)
            if stage in TRAINED:
                good &= all(has_fallen(run, stage, name, report) for name in _WATCHED[stage])
        good &= speaks(run.path / "checkpoint", report)
    report("check: every loss has fallen" if good else "check: FAILED")
    return 0 if good else 1


def has_fallen(run: RunFolder, stage: str, name: str, report: Callable[[str], None]) -> bool:
    """Say whether the last rows of one of a stage's losses lie below the first."""
    losses = [row[name] for row in run.read_losses(stage)]
    if len(losses) < 3:
        report(f"check: {stage} made too few steps for a result; give it more --minutes")
        return False
    count = max(1, len(losses) // 4)
    first, last = float(np.mean(losses[:count])), float(np.mean(losses[-count:]))
    report(f"check: {stage}, {name} from {first:.3f} to {last:.3f}")
    return last < _FALLEN * first


def speaks(checkpoint: Path, report: Callable[[str], None]) -> bool:
    """Say whether the engine loads a checkpoint, clones a clip and renders finite audio."""
    engine = Engine.load(EngineConfig(checkpoint, device="cpu", dtype="float32", slots=1))
    try:
        clip = np.random.default_rng(0).normal(0, 0.05, engine.sample_rate).astype(np.float32)
        reference = Reference("A clip.", engine.encode_reference(clip, engine.sample_rate))
        sampling = Sampling(max_frames=8)
        segment = engine.render(RenderSpec("A sentence.", reference, sampling))
    finally:
        engine.close()
    report(f"check: the engine renders {segment.codes.shape[1]} frames")
    return bool(np.isfinite(segment.audio).all())
