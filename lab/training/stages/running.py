"""Run one stage of the recipe in a run's folder, and say whether it came far enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lab.training.export import export_run
from lab.training.plans import Plan
from lab.training.run_folder import RunFolder
from lab.training.stages.data import make_shards
from lab.training.stages.decoder import DecoderStage
from lab.training.stages.encoder import EncoderStage
from lab.training.stages.head import HeadStage, TuneStage
from lab.training.stages.hearing import has_heard, hear_clips, load_heard
from lab.training.stages.lm import LMStage
from lab.training.stages.phases import PhaseStage
from lab.training.stages.quantizer import (
    fit_quantizer,
    load_quantizer,
    read_speech,
)
from lab.training.starting import codec_weights, read_quantizer, take_over, take_over_lm
from lab.training.trained import trained_encoder
from lab.training.trainer import Budget, train
from synth.engine.codec.halves import CodecDecoder, CodecEncoder

TRAINED = ("phases", "head", "decoder", "tune", "encoder", "lm")
Report = Callable[[str], None]
Trainee = PhaseStage | HeadStage | DecoderStage | EncoderStage | LMStage
# Stage -> (loss, the most it may be at the end). Beyond these words or melody are lost.
_LIMITS = {
    "phases": (("phase", 0.03), ("features", 0.12)),
    "head": (("mel", 0.15), ("wave", 0.35)),
    "decoder": (("wave", 0.1), ("mel", 0.03)),
    "tune": (("mel", 0.15), ("wave", 0.35)),
    "encoder": (("lost", 0.25), ("pitch_off", 0.06)),
    "lm": (("semantic", 0.7), ("phase", 1.2), ("attention", 0.4)),
}
_RATES = {
    "phases": 2e-3,
    "head": 2e-3,
    "decoder": 1.5e-3,
    "tune": 1e-4,
    "encoder": 1.2e-3,
    "lm": 2e-3,
}
# Of a stage that goes on from a checkpoint, where that is another: at the first rate it would lose
# what it knows before it learns more.
_RATES_FURTHER = {"encoder": 6e-4, "lm": 1e-3}
_ROWS = 4  # of the losses' end that are averaged


class GateError(Exception):
    """A stage is not good enough for the next one; the text names the losses."""


@dataclass(frozen=True, slots=True)
class Options:
    """Hold how a run goes: on which device, for how long, from what it starts.

    `minutes` is the budget of one stage. `sitting_minutes` ends this process's part of it.
    `start_from` is a checkpoint folder whose codebooks and weights are taken over.
    """

    device: torch.device
    minutes: float
    sitting_minutes: float = math.inf
    force: bool = False
    start_from: Path | None = None


def run_stage(stage: str, run: RunFolder, plan: Plan, options: Options, report: Report) -> bool:
    """Run a stage; return False when its budget is not used up at the end of this sitting.

    Raises:
        RunFolderError: what it builds on is missing, or does not fit the plan.
        FliteMissingError, DictionaryMissingError: what the data is made with is not installed.
    """
    if stage == "data":
        make_shards(run.speech, plan.shards, plan.utterances, report)
    elif stage == "quantizer":
        _make_quantizer(run, plan, options, report)
    elif stage == "export":
        folder = run.path / "checkpoint"
        export_run(run, plan, folder, start_from=options.start_from, report=report)
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


def _make_quantizer(run: RunFolder, plan: Plan, options: Options, report: Report) -> None:
    known = None
    if options.start_from is not None:
        known = read_quantizer(options.start_from)
        report(f"quantizer: {len(known.books)} books taken from {options.start_from}")
    sizes = plan.sizes
    fit_quantizer(
        run,
        shards=plan.codec_shards,
        num_books=sizes.num_codebooks,
        size=sizes.codes,
        known=known,
        report=report,
    )


def _train(stage: str, run: RunFolder, plan: Plan, options: Options, report: Report) -> bool:
    trainee = _build(stage, run, plan, options, report)
    if not run.has(f"{stage}-state"):
        _start(trainee, run, options.start_from)
    is_lm = stage == "lm"
    budget = Budget(
        options.minutes,
        _rate(stage, is_further=options.start_from is not None),
        sitting_minutes=options.sitting_minutes,
        held=0.4 if is_lm else 0.3,
        decay=0.01 if is_lm else 1e-4,
        betas=(0.8, 0.98) if stage == "head" else (0.9, 0.98),
        clip=3.0 if stage == "head" else 1.0,
        report_every=plan.report_every,
    )
    whole = train(trainee, run, budget, report)
    if isinstance(trainee, LMStage) and whole:
        losses = " ".join(f"{name} {value:.3f}" for name, value in trainee.held_out().items())
        report(f"lm, unseen texts: {losses}")
    return whole


def _rate(stage: str, *, is_further: bool) -> float:
    return _RATES_FURTHER.get(stage, _RATES[stage]) if is_further else _RATES[stage]


def _build(stage: str, run: RunFolder, plan: Plan, options: Options, report: Report) -> Trainee:
    quantizer, device = load_quantizer(run), options.device
    if stage == "lm":
        speech, recipe = read_speech(run, waves=False), plan.lm
        if not has_heard(run):
            encoder = trained_encoder(run, plan, options.start_from)
            hear_clips(run, encoder, recipe.heard_clips, report)
        if options.start_from is not None:
            recipe = replace(recipe, curriculum=0.0)  # the checkpoint knows long sentences
        return LMStage(speech, load_heard(run), quantizer, plan.sizes, recipe, device)
    speech = read_speech(run, plan.codec_shards, waves=stage == "encoder")
    if stage == "encoder":
        return EncoderStage(speech, quantizer, plan.codec, plan.encoder, device)
    if stage == "head":
        return HeadStage(speech, quantizer, plan.codec, plan.head, device)
    if stage == "tune":
        return TuneStage(speech, quantizer, plan.codec, plan.tune, device)
    if stage == "decoder":
        return DecoderStage(speech, quantizer, plan.codec, plan.decoder, device)
    return PhaseStage(speech, quantizer, plan.codec, plan.phases, device)


def _start(trainee: Trainee, run: RunFolder, checkpoint: Path | None) -> None:
    """Give a stage that has not begun its first weights: a checkpoint's, or an earlier stage's."""
    if isinstance(trainee, DecoderStage):
        trainee.take_latents(run.load("head-state")["network"], fresh=checkpoint is None)
    elif isinstance(trainee, TuneStage):
        _start_tuning(trainee, run, checkpoint)
    elif isinstance(trainee, HeadStage):
        trainee.network.load_state_dict(run.load("phases-state")["network"])
    elif checkpoint is None:
        return
    elif isinstance(trainee, PhaseStage):
        take_over(trainee.network.decoder, codec_weights(checkpoint, CodecDecoder), checkpoint)
    elif isinstance(trainee, EncoderStage):
        take_over(trainee.network, codec_weights(checkpoint, CodecEncoder), checkpoint)
    else:
        take_over_lm(trainee.network.lm, checkpoint)


def _start_tuning(trainee: TuneStage, run: RunFolder, checkpoint: Path | None) -> None:
    """Give a decoder the run's weights, or the checkpoint's where the run has trained none."""
    if checkpoint is None or run.has("decoder-state"):
        trainee.network.load_state_dict(run.load("decoder-state")["network"])
    else:
        take_over(trainee.network.decoder, codec_weights(checkpoint, CodecDecoder), checkpoint)


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
