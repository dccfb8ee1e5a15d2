"""Load what the stages have made, without what it was taught with.

Where a run goes on from a checkpoint, a part whose stage has not run is the checkpoint's.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from lab.training.codec_network import TaughtDecoder, build_encoder, set_books
from lab.training.lm_network import build_lm
from lab.training.plans import Plan
from lab.training.run_folder import RunFolder
from lab.training.stages.quantizer import load_quantizer
from lab.training.starting import codec_weights, take_over, take_over_lm
from synth.engine.codec.halves import CodecDecoder, CodecEncoder


def trained_encoder(run: RunFolder, plan: Plan, checkpoint: Path | None) -> CodecEncoder:
    """Return the run's encoder; raise RunFolderError where there is none."""
    encoder = build_encoder(plan.codec)
    if checkpoint is None or run.has("encoder-state"):
        encoder.load_state_dict(run.load("encoder-state")["network"])
    else:
        set_books(encoder, load_quantizer(run).books)
        take_over(encoder, codec_weights(checkpoint, CodecEncoder), checkpoint)
    return encoder


def trained_decoder(run: RunFolder, plan: Plan, checkpoint: Path | None) -> CodecDecoder:
    """Return the run's decoder; raise RunFolderError where there is none."""
    taught = TaughtDecoder(plan.codec, load_quantizer(run).books)
    state = decoder_state(run)
    if checkpoint is None or run.has(state):
        taught.load_state_dict(run.load(state)["network"])
    else:
        take_over(taught.decoder, codec_weights(checkpoint, CodecDecoder), checkpoint)
    return taught.decoder


def decoder_state(run: RunFolder) -> str:
    """Return the name under which a run keeps its newest decoder."""
    return "tune-state" if run.has("tune-state") else "decoder-state"


def trained_lm(run: RunFolder, plan: Plan, checkpoint: Path | None) -> dict[str, Tensor]:
    """Return the weights of the run's language model; raise RunFolderError without one."""
    if checkpoint is not None and not run.has("lm-state"):
        lm = build_lm(plan.sizes)
        take_over_lm(lm, checkpoint)
        return dict(lm.state_dict())
    prefix = "lm."
    weights = run.load("lm-state")["network"]
    return {
        name.removeprefix(prefix): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }
