"""Run one stage of the recipe, or all that are left, in one folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from training.codes_stage import fit_quantizer, load_codes, load_quantizer, write_codes
from training.decoder_stage import DecoderStage
from training.encoder_stage import EncoderStage
from training.gates import missed_gates
from training.lm_stage import LMStage
from training.plan import Plan
from training.run_folder import RunFolder, RunFolderError
from training.shards import ALIGNED, PLAIN, Clip, read_shard, shard_paths
from training.trainer import Budget, train

STAGES = ("data", "quantizer", "codes", "encoder", "decoder", "lm", "export")
TRAINED = ("encoder", "decoder", "lm")
Report = Callable[[str], None]


class GateError(Exception):
    """A stage is not good enough for the next one; the text names the losses."""


@dataclass(frozen=True, slots=True)
class Options:
    """Hold how a run goes: on which device, for how long, from what it starts.

    `minutes` is the budget of one stage. `sitting_minutes` ends this process's part of it.
    `start_from` is a checkpoint folder whose encoder is taken over.
    """

    device: torch.device
    minutes: float
    sitting_minutes: float = math.inf
    force: bool = False
    start_from: Path | None = None


def run_stage(stage: str, run: RunFolder, plan: Plan, options: Options, report: Report) -> bool:
    """Run a stage; return False when its budget is not used up at the end of this sitting.

    Raises:
        RunFolderError: what it builds on is missing.
    """
    if stage == "data":
        from training.data_stage import make_shards  # needs espeak-ng, which training does not

        make_shards(run.speech, ALIGNED, plan.aligned_shards, plan.clips, report)
        make_shards(run.speech, PLAIN, plan.plain_shards, plan.clips // 2, report)
    elif stage == "quantizer":
        sizes = plan.sizes
        fit_quantizer(run, num_books=sizes.num_codebooks, size=sizes.codes, report=report)
    elif stage == "codes":
        write_codes(run, report)
    elif stage == "export":
        from training.finish import export_run

        export_run(run, plan, run.path / "checkpoint", report)
    else:
        return _train(stage, run, plan, options, report)
    return True


def check_gate(stage: str, run: RunFolder, options: Options, report: Report) -> None:
    """Raise GateError when a stage's losses are not low enough; with `force` only say so."""
    for sentence in missed_gates(run, stage):
        if not options.force:
            raise GateError(
                f"{sentence}. Train it longer (--stage {stage} --minutes N), or go on with --force."
            )
        report(f"gate missed: {sentence}")


def _train(stage: str, run: RunFolder, plan: Plan, options: Options, report: Report) -> bool:
    trainee: EncoderStage | DecoderStage | LMStage
    rate, betas, clip = 1e-3, (0.9, 0.98), 1.0
    if stage == "lm":
        trainee, rate = LMStage(load_codes(run), plan.sizes, plan.lm, options.device), 2e-3
    elif stage == "decoder":
        space, books = load_quantizer(run)
        clips = _clips(run, ALIGNED, plan.decoder_shards)
        trainee = DecoderStage(clips, space, books, plan.decoder, options.device)
        rate, betas, clip = 1.5e-3, (0.8, 0.98), 3.0
    else:
        space, books = load_quantizer(run)
        clips = _clips(run, PLAIN, plan.plain_shards)
        trainee = EncoderStage(
            clips, space, books, plan.encoder, options.device, options.start_from
        )
    budget = Budget(
        options.minutes,
        rate,
        sitting_minutes=options.sitting_minutes,
        betas=betas,
        clip=clip,
        report_every=plan.report_every,
    )
    whole = train(trainee, run, budget, report)
    if isinstance(trainee, LMStage) and whole:
        losses = " ".join(f"{name} {value:.3f}" for name, value in trainee.held_out().items())
        report(f"lm, unseen texts: {losses}")
    return whole


def _clips(run: RunFolder, kind: str, count: int) -> list[Clip]:
    paths = shard_paths(run.speech, kind)[:count]
    if not paths:
        raise RunFolderError(f"{run.speech} holds no speech: run train-demo --stage data first.")
    return [clip for path in paths for clip in read_shard(path)]
