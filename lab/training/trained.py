"""Load what the stages have made of the codec's halves."""

from __future__ import annotations

from lab.training.codec_network import build_encoder
from lab.training.plans import Plan
from lab.training.run_folder import RunFolder
from lab.training.stages.phases import build_taught_decoder
from lab.training.stages.quantizer import load_quantizer
from synth.engine.codec.halves import CodecDecoder, CodecEncoder


def trained_encoder(run: RunFolder, plan: Plan) -> CodecEncoder:
    """Return the run's encoder; raise RunFolderError where it has not been trained."""
    encoder = build_encoder(plan.codec)
    encoder.load_state_dict(run.load("encoder-state")["network"])
    return encoder


def trained_decoder(run: RunFolder, plan: Plan) -> CodecDecoder:
    """Return the run's decoder; raise RunFolderError where it has not been trained."""
    taught = build_taught_decoder(plan.codec, load_quantizer(run))
    taught.load_state_dict(run.load("decoder-state")["network"])
    return taught.decoder
