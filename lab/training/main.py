"""Train the demo checkpoint: `python -m lab.training.main`, without Django.

The stages in order: data (needs flite and PocketSphinx), quantizer, phases, head, decoder, tune,
encoder, lm, export. Each goes on where it was stopped, killed or not. Encoder and language model
need the quantizer alone: two processes may train at once in one folder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from lab.training.arguments import STAGES, add_arguments
from lab.training.flite import FliteMissingError
from lab.training.plans import Plan, settle_plan
from lab.training.run_folder import RunFolder, RunFolderError
from lab.training.stages.running import (
    TRAINED,
    GateError,
    Options,
    check_gate,
    run_stage,
)
from lab.training.texts import DictionaryMissingError
from synth.contract import Reference, RenderSpec, Sampling
from synth.engine import Engine, EngineConfig

DEFAULT_MINUTES = 160.0
_SETUP_MINUTES = 0.8  # for data, codebooks and export, which have no budget
# What must fall; `loss` is no measure, for its weights change on the way.
_WATCHED = {
    "phases": ("pitch", "features"),
    "head": ("mel", "features"),
    "encoder": ("lost", "state"),
    "decoder": ("wave", "mel"),
    "tune": ("mel", "level"),
    "lm": ("semantic", "residual", "attention"),
}
_FALLEN = 0.97  # the last losses as a share of the first


def run(options: argparse.Namespace) -> int:
    """Train as the options say; return the exit code and say on standard error what goes wrong."""
    torch.set_num_threads(options.threads)
    try:
        if options.check:
            return run_check(options.minutes or 3.0, show)
        folder = RunFolder(options.folder)
        plan = settle_plan(folder, options.plan, frozen_blocks=options.frozen_blocks)
        device = prepare_device(options.device)
        stages = STAGES if options.stage is None else (options.stage,)
        for stage in stages:
            chosen = Options(
                device=device,
                minutes=minutes_of(stage, plan, options.minutes, alone=len(stages) == 1),
                sitting_minutes=options.sitting_minutes,
                force=options.force,
                start_from=options.start_from,
            )
            if not run_stage(stage, folder, plan, chosen, show):
                show(f"{stage}: the time given is over; the same command continues")
                return 0
            check_gate(stage, folder, chosen, show)
    except (RunFolderError, GateError, FliteMissingError, DictionaryMissingError) as error:
        show(f"train-demo: {error}")
        return 1
    return 0


def minutes_of(stage: str, plan: Plan, minutes: float | None, *, alone: bool) -> float:
    """Return a stage's budget: all of it when it runs alone, else its share of the whole."""
    whole = minutes or DEFAULT_MINUTES
    if stage not in TRAINED:
        return whole
    return whole if alone and minutes is not None else plan.minutes[stage] * whole


def prepare_device(name: str) -> torch.device:
    """Return the device; on CUDA, let float32 matrices and convolutions round to TF32.

    That is enough for the codec; the language model runs in bfloat16 there.
    """
    if name == "cuda":
        if not torch.cuda.is_available():
            raise RunFolderError("torch sees no CUDA device here: use --device cpu.")
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    return torch.device(name)


def show(line: str) -> None:
    """Write a line of progress to standard error; on a terminal, steps overwrite each other."""
    is_step = ": step " in line
    if is_step and sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}")
    else:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main() -> int:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m lab.training.main", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args())


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


if __name__ == "__main__":
    raise SystemExit(main())
