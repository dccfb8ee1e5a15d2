"""Hold the sizes and recipes that a run can have; a run's folder keeps the name of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from lab.training.decoder_stage import DecoderRecipe
from lab.training.encoder_stage import EncoderRecipe
from lab.training.lm_network import LMSizes
from lab.training.lm_stage import LMRecipe
from lab.training.shards import RunFolder, RunFolderError

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
