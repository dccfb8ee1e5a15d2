"""Run one stage of the recipe, or all that are left, in one folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lab.training.codec_network import build_encoder, codec_config
from lab.training.codes_stage import (
    first_clips,
    fit_quantizer,
    load_codes,
    load_quantizer,
    write_codes,
)
from lab.training.decoder_stage import DecoderRecipe, DecoderStage
from lab.training.encoder_stage import EncoderRecipe, EncoderStage
from lab.training.lm_network import LMSizes
from lab.training.lm_stage import LMRecipe, LMStage
from lab.training.shards import ALIGNED, PLAIN, RunFolder, RunFolderError, read_shard, shard_paths
from lab.training.trainer import Budget, train
from synth.engine.codec.halves import CodecEncoder

PLAN_FILE = "plan.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold the sizes and recipes of one run; shards are of `clips` clips each.

    `minutes` are shares of the whole training time for encoder, decoder and language model.
    """

    name: str
    aligned_shards: int
    plain_shards: int
    clips: int
    sizes: LMSizes
    encoder: EncoderRecipe
    decoder: DecoderRecipe
    lm: LMRecipe
    decoder_shards: int = 4
    minutes: tuple[float, float, float] = (0.3, 0.25, 0.45)
    report_every: int = 25


PLANS = {
    plan.name: plan
    for plan in (
        Plan(
            name="toy",
            aligned_shards=1,
            plain_shards=1,
            clips=260,
            sizes=LMSizes(dim=64, layers=4, ffn=128, fast_ffn=64, fast_layers=1),
            encoder=EncoderRecipe(batch=2, layers=1),
            decoder=DecoderRecipe(batch=2, frames=3, context=2, decoder_dim=64, layers=1),
            lm=LMRecipe(batch=4, fast_frames=48, curriculum=0.0),
            decoder_shards=1,
            report_every=4,
        ),
        Plan(
            name="cpu",
            aligned_shards=16,
            plain_shards=4,
            clips=2000,
            sizes=LMSizes(),
            encoder=EncoderRecipe(),
            decoder=DecoderRecipe(),
            lm=LMRecipe(),
        ),
        Plan(
            name="gpu",
            aligned_shards=20,
            plain_shards=4,
            clips=2000,
            sizes=LMSizes(dim=192, head_dim=48, ffn=512, fast_ffn=384),
            encoder=EncoderRecipe(batch=48),
            decoder=DecoderRecipe(batch=32, frames=16, decoder_dim=192),
            lm=LMRecipe(batch=96, fast_frames=1536),
        ),
    )
}


def settle_plan(run: RunFolder, name: str | None, *, frozen_blocks: int | None) -> Plan:
    """Return the folder's plan; the first call of a folder chooses it, `cpu` without a name.

    Raises:
        RunFolderError: the folder was begun with another plan: its weights have other sizes.
    """
    path = run.path / PLAN_FILE
    begun = json.loads(path.read_text(encoding="utf-8"))["plan"] if path.is_file() else None
    if begun is not None and name is not None and begun != name:
        raise RunFolderError(
            f"{run.path} was started with the plan {begun!r}; leave --plan out, or use "
            "another --folder."
        )
    chosen = begun or name or "cpu"
    if begun is None:
        run.path.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"plan": chosen}) + "\n", encoding="utf-8")
    plan = PLANS[chosen]
    if frozen_blocks is not None:
        plan = replace(plan, encoder=replace(plan.encoder, frozen_blocks=frozen_blocks))
    return plan


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
        write_codes(run, _trained_encoder(run, plan, options.device), report)
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


def _trained_encoder(run: RunFolder, plan: Plan, device: torch.device) -> CodecEncoder | None:
    """Return the run's encoder for use, None where it has not been trained."""
    if not run.has("encoder-state"):
        return None
    _, books = load_quantizer(run)
    encoder = build_encoder(
        codec_config(num_books=len(books), book_size=plan.sizes.codes, layers=plan.encoder.layers)
    )
    encoder.load_state_dict(run.load("encoder-state")["network"])
    return encoder.to(device).eval()


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
