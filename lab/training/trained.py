"""Load what the stages have made, without what it was taught with."""

from __future__ import annotations

from torch import Tensor

from lab.training.codec_network import TaughtDecoder, build_encoder
from lab.training.plans import Plan
from lab.training.run_folder import RunFolder
from lab.training.stages.quantizer import load_quantizer
from synth.engine.codec.halves import CodecDecoder, CodecEncoder


def trained_encoder(run: RunFolder, plan: Plan) -> CodecEncoder:
    """Return the run's encoder; raise RunFolderError where it has not been trained."""
    encoder = build_encoder(plan.codec)
    encoder.load_state_dict(run.load("encoder-state")["network"])
    return encoder


def trained_decoder(run: RunFolder, plan: Plan) -> CodecDecoder:
    """Return the run's decoder; raise RunFolderError where it has not been trained."""
    taught = TaughtDecoder(plan.codec, load_quantizer(run).books)
    taught.load_state_dict(run.load("decoder-state")["network"])
    return taught.decoder


def trained_lm(run: RunFolder) -> dict[str, Tensor]:
    """Return the weights of the run's language model; raise RunFolderError without one."""
    prefix = "lm."
    weights = run.load("lm-state")["network"]
    return {
        name.removeprefix(prefix): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }
