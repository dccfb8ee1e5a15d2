"""An exported folder loads in the engine with the weights that were trained."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch

from lab.training.codebooks import Book, fit_books, fit_latent_space
from lab.training.codec_network import build_decoder, build_encoder, codec_config, set_books
from lab.training.export import export_checkpoint, unfolded
from lab.training.lm_network import LMSizes, build_lm
from synth.engine import Engine, EngineConfig
from synth.engine.codec.load import load_decoder, load_encoder
from synth.engine.codec.stages import VectorQuantizer
from tests.lab.training.clips import make_clips

SIZES = LMSizes(codes=16, num_codebooks=3, dim=32, layers=2, head_dim=16, ffn=48, fast_ffn=32)


@pytest.fixture(scope="module")
def books() -> list[Book]:
    """Return three small books."""
    clips = make_clips(30)
    space = fit_latent_space(clips, num_states=16)
    latents = torch.cat([space.latents(clip) for clip in clips])
    states = torch.cat([space.codes_of(clip.states) for clip in clips])
    return fit_books(space, latents, states, num_books=3, size=16, report=lambda line: None)


@pytest.fixture(scope="module")
def checkpoint(books: list[Book], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny model whose codec holds the books."""
    torch.manual_seed(0)
    config = codec_config(num_books=3, book_size=16, decoder_dim=32, layers=1)
    encoder, decoder = build_encoder(config), build_decoder(config)
    set_books(encoder, books)
    set_books(decoder, books)
    folder = tmp_path_factory.mktemp("checkpoint")
    export_checkpoint(folder, SIZES, build_lm(SIZES).state_dict(), encoder, decoder)
    return folder


def test_the_engine_loads_it_and_speaks_with_the_codebooks(
    checkpoint: Path, books: list[Book]
) -> None:
    engine = Engine.load(EngineConfig(checkpoint, device="cpu", slots=1))
    try:
        engine.warm_up()
    finally:
        engine.close()

    latents = torch.randn(50, 128)
    encoder, decoder = load_encoder(checkpoint, "cpu"), load_decoder(checkpoint, "cpu")
    semantic = cast("VectorQuantizer", encoder.quantizer.semantic_quantizer.quantizers[0])
    second = cast("VectorQuantizer", decoder.quantizer.quantizer.quantizers[1])

    found = semantic.search(latents.t()[None])[0]

    assert (found == books[0].search(latents)).float().mean() > 0.95
    codes = torch.arange(16)
    looked_up = second.lookup(codes[None])[0].t()
    assert torch.allclose(looked_up, books[2].lookup(codes), atol=2e-2)


def test_a_filter_of_zeros_has_a_direction_and_no_length(books: list[Book]) -> None:
    decoder = build_decoder(codec_config(num_books=3, book_size=16, decoder_dim=32, layers=1))
    set_books(decoder, books)

    weights = unfolded(decoder)

    norms = weights["quantizer.quantizer.quantizers.0.out_proj.weight_g"]
    directions = weights["quantizer.quantizer.quantizers.0.out_proj.weight_v"]
    assert (norms == 0).any()  # rows of latents that the first book leaves alone
    assert (directions.flatten(1).norm(dim=1) > 0).all()
