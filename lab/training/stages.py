"""Run one stage of the recipe, or all that are left, in one folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from lab.training.codes_stage import (
    first_clips,
    fit_quantizer,
    load_codes,
    load_quantizer,
    write_codes,
)
from lab.training.decoder_stage import DecoderStage
from lab.training.encoder_stage import EncoderStage
from lab.training.lm_stage import LMStage
from lab.training.plans import Plan
from lab.training.shards import ALIGNED, PLAIN, RunFolder, RunFolderError, read_shard, shard_paths
from lab.training.trained import trained_encoder
from lab.training.trainer import Budget, train

TRAINED = ("encoder", "decoder", "lm")
Report = Callable[[str], None]
# Stage -> (loss, the most it may be at the end). Beyond these the round trip loses words.
_LIMITS = {
    "encoder": (("lost", 0.45), ("voice", 0.3)),
    "decoder": (("mel", 0.26), ("wave", 0.70)),
    "lm": (("semantic", 1.3), ("attention", 0.8)),
}
_ROWS = 4  # of the losses' end that are averaged


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
        from lab.training.data_stage import make_shards  # needs espeak-ng, which training does not

        make_shards(run.speech, ALIGNED, plan.aligned_shards, plan.clips, report)
        make_shards(run.speech, PLAIN, plan.plain_shards, plan.clips // 2, report)
    elif stage == "quantizer":
        sizes = plan.sizes
        fit_quantizer(run, num_books=sizes.num_codebooks, size=sizes.codes, report=report)
    elif stage == "codes":
        write_codes(run, trained_encoder(run, plan, options.device), report)
    elif stage == "export":
        from lab.training.export import export_run

        export_run(run, plan, run.path / "checkpoint", report)
    else:
        return _train(stage, run, plan, options, report)
    return True


def check_gate(stage: str, run: RunFolder, options: Options, report: Report) -> None:
    """Raise GateError when a stage's losses are not low enough; with `force` only say so."""
    for sentence in missed_gates(run, stage):
        if not options.force:
            raise GateError(
                f"{sentence}. Train it longer (--stage {stage} --minutes N), or continue "
                "with --force."
            )
        report(f"gate missed: {sentence}")


def _train(stage: str, run: RunFolder, plan: Plan, options: Options, report: Report) -> bool:
    trainee: EncoderStage | DecoderStage | LMStage
    rate, betas, clip = 1e-3, (0.9, 0.98), 1.0
    if stage == "lm":
        trainee, rate = LMStage(load_codes(run), plan.sizes, plan.lm, options.device), 2e-3
    elif stage == "decoder":
        clips, coded = first_clips(run, plan.decoder_shards), load_codes(run)
        codes = [coded.codes_of(index) for index in range(len(clips))]
        trainee = DecoderStage(clips, codes, load_quantizer(run)[1], plan.decoder, options.device)
        rate, betas, clip = 1.5e-3, (0.8, 0.98), 3.0
    else:
        space, books = load_quantizer(run)
        paths = shard_paths(run.speech, PLAIN)
        clips = [clip for path in paths for clip in read_shard(path)]
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


def missed_gates(run: RunFolder, stage: str) -> list[str]:
    """Return a sentence for every limit that a stage's losses have not come under."""
    rows = run.read_losses(stage)[-_ROWS:]
    if stage not in _LIMITS:
        return []
    if not rows:
        return [f"{stage} has not been trained"]
    missed = []
    for name, limit in _LIMITS[stage]:
        value = sum(row[name] for row in rows) / len(rows)
        if not value <= limit:
            missed.append(f"{stage}: {name} is {value:.3f} and should be at most {limit}")
    return missed
