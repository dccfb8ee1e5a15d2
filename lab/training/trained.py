"""Build a run's codec halves, and load what the stages have made of them."""

from __future__ import annotations

import torch

from lab.training.codec_network import build_decoder, build_encoder, codec_config
from lab.training.plans import Plan
from lab.training.shards import RunFolder
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.halves import CodecDecoder, CodecEncoder

DECODER_PART = "decoder."  # of the names in the decoder's stage, which trains another part beside


def plan_codec(plan: Plan) -> CodecConfig:
    """Return the codec's sizes."""
    sizes, recipe = plan.sizes, plan.decoder
    return codec_config(
        num_books=sizes.num_codebooks,
        book_size=sizes.codes,
        decoder_dim=recipe.decoder_dim,
        layers=recipe.layers,
    )


def trained_encoder(run: RunFolder, plan: Plan, device: torch.device) -> CodecEncoder | None:
    """Return the run's encoder for use, None where it has not been trained."""
    if not run.has("encoder-state"):
        return None
    encoder = build_encoder(plan_codec(plan))
    encoder.load_state_dict(run.load("encoder-state")["network"])
    return encoder.to(device).eval()


def trained_decoder(run: RunFolder, plan: Plan) -> CodecDecoder:
    """Return the run's decoder; raise RunFolderError where it has not been trained."""
    decoder = build_decoder(plan_codec(plan))
    weights = run.load("decoder-state")["network"]
    decoder.load_state_dict(
        {
            name.removeprefix(DECODER_PART): weight
            for name, weight in weights.items()
            if name.startswith(DECODER_PART)
        }
    )
    return decoder
