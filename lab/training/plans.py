"""Hold the sizes and recipes that a run can have; a run's folder keeps the name of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from lab.training.codec_network import codec_config
from lab.training.lm_network import LMSizes
from lab.training.run_folder import RunFolder, RunFolderError
from lab.training.stages.decoder import DecoderRecipe
from lab.training.stages.encoder import EncoderRecipe
from lab.training.stages.head import HeadRecipe
from lab.training.stages.lm import LMRecipe
from lab.training.stages.phases import PhaseRecipe
from synth.engine.codec.config import CodecConfig

PLAN_FILE = "plan.json"
_DEFAULT_MINUTES = {
    "phases": 0.03, "head": 0.16, "decoder": 0.05, "tune": 0.1, "encoder": 0.2, "lm": 0.46,
}  # fmt: skip


def _tune_recipe(batch: int = 6, frames: int = 9) -> HeadRecipe:
    """Return the recipe of the stage `tune`, which reads nothing off the latents.

    The waveform itself counts little: of a harmonic whose phase is not sure it asks for less.
    """
    return HeadRecipe(
        batch=batch, frames=frames, reading_weight=0.0, wave_weight=0.25, level_weight=1.5
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold the sizes and recipes of one run; shards are of `utterances` sentences each.

    The codec is fitted to the first `codec_shards`. `minutes` are each stage's share of the whole
    training time.
    """

    name: str
    shards: int
    utterances: int
    sizes: LMSizes
    decoder_dim: int = 192
    codec_layers: int = 4
    phases: PhaseRecipe = field(default_factory=PhaseRecipe)
    head: HeadRecipe = field(default_factory=HeadRecipe)
    encoder: EncoderRecipe = field(default_factory=EncoderRecipe)
    decoder: DecoderRecipe = field(default_factory=DecoderRecipe)
    tune: HeadRecipe = field(default_factory=_tune_recipe)
    lm: LMRecipe = field(default_factory=LMRecipe)
    codec_shards: int = 2
    minutes: dict[str, float] = field(default_factory=_DEFAULT_MINUTES.copy)
    report_every: int = 25

    @property
    def codec(self) -> CodecConfig:
        """Return the codec's sizes."""
        return codec_config(
            num_books=self.sizes.num_codebooks,
            book_size=self.sizes.codes,
            decoder_dim=self.decoder_dim,
            layers=self.codec_layers,
        )


PLANS = {
    plan.name: plan
    for plan in (
        Plan(
            name="toy",
            shards=1,
            utterances=96,
            sizes=LMSizes(dim=64, layers=4, head_dim=32, ffn=128, fast_ffn=64, fast_layers=1),
            decoder_dim=64,
            codec_layers=1,
            encoder=EncoderRecipe(batch=2, frames=12),
            phases=PhaseRecipe(batch=8, frames=8),
            head=HeadRecipe(batch=2, frames=4),
            decoder=DecoderRecipe(batch=2, frames=4),
            tune=_tune_recipe(batch=2, frames=4),
            lm=LMRecipe(positions=1200, fast_frames=48, heard_clips=24, curriculum=0.0),
            codec_shards=1,
            minutes=dict.fromkeys(_DEFAULT_MINUTES, 0.2),
            report_every=4,
        ),
        Plan(name="cpu", shards=12, utterances=1500, sizes=LMSizes()),
        Plan(
            name="gpu",
            shards=12,
            utterances=1500,
            sizes=LMSizes(),
            encoder=EncoderRecipe(batch=24),
            phases=PhaseRecipe(batch=96),
            head=HeadRecipe(batch=40),
            decoder=DecoderRecipe(batch=40),
            tune=_tune_recipe(batch=40),
            lm=LMRecipe(positions=18000, fast_frames=1024),
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
