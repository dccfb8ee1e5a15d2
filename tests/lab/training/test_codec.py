"""Encoder and decoder are the engine's, learn, and load in the engine when exported."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from lab.training.codes_stage import heard_codes
from lab.training.decoder_stage import DecoderRecipe, DecoderStage
from lab.training.encoder_stage import EncoderRecipe, EncoderStage, copy_encoder
from lab.training.synthesis import upsample

from lab.training.codebooks import Book, LatentSpace, encode_latents, fit_books, fit_latent_space
from lab.training.codec_network import (
    TrainedSnake,
    build_decoder,
    build_encoder,
    codec_config,
    set_books,
)
from lab.training.export import export_checkpoint, unfolded, write_codec
from lab.training.lm_network import LMSizes, build_lm
from lab.training.shards import RunFolderError
from synth.engine import Engine, EngineConfig
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.layers import Snake
from synth.engine.codec.load import load_decoder, load_encoder
from synth.engine.codec.stages import VectorQuantizer
from tests.lab.training.clips import make_clip, make_clips

CONFIG = codec_config(num_books=3, book_size=8, decoder_dim=32, layers=1)


def test_snake_gives_what_the_engine_s_gives_with_the_true_gradient() -> None:
    engine, x = Snake(5), torch.randn(2, 5, 9)
    torch.nn.init.uniform_(engine.alpha, 0.5, 2)
    assert torch.allclose(TrainedSnake(engine.alpha)(x), engine(x.clone()), atol=1e-6)
    alpha = torch.nn.Parameter(torch.rand(1, 3, 1, dtype=torch.float64) + 0.5)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(TrainedSnake(alpha), (x,))
    assert torch.autograd.gradcheck(lambda _: TrainedSnake(alpha)(x), (alpha,))


def test_first_weights_keep_the_signal_s_size_and_have_the_engine_s_names() -> None:
    torch.manual_seed(0)
    hidden = build_encoder(CONFIG).encoder(0.1 * torch.randn(1, 1, 8192)).detach()
    assert 0.2 < float(hidden.std()) < 20
    assert float(hidden.std(dim=2).mean()) > 0.05  # not bias alone
    with torch.device("meta"):
        engine = CodecDecoder(CONFIG)
    ours, theirs = (
        [name for name, _ in half.named_parameters()] for half in (build_decoder(CONFIG), engine)
    )
    assert set(ours) == set(theirs)


CPU = torch.device("cpu")
CLIPS = make_clips(30)


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    return fit_latent_space(CLIPS, num_states=16)


@pytest.fixture(scope="module")
def books(space: LatentSpace) -> list[Book]:
    latents = torch.cat([space.latents(clip) for clip in CLIPS])
    states = torch.cat([space.codes_of(clip.states) for clip in CLIPS])
    return fit_books(space, latents, states, num_books=3, size=16, report=lambda line: None)


def descend(stage: EncoderStage | DecoderStage, name: str, steps: int) -> tuple[float, float]:
    """Return a loss of the first batch before and after some steps."""
    trained = [weight for weight in stage.network.parameters() if weight.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=4e-3)
    before = float(stage.losses(0, 0.0)[name].detach())
    for step in range(steps):
        loss = stage.losses(step % 2, 0.0)["loss"]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return before, float(stage.losses(0, 0.0)[name].detach())


def test_the_encoder_comes_nearer_to_the_latents(space: LatentSpace, books: list[Book]) -> None:
    stage = EncoderStage(CLIPS, space, books, EncoderRecipe(batch=2, layers=1), CPU)
    before, after = descend(stage, "loss", steps=12)
    assert after < before

    # Frozen blocks stay and are run once a clip.
    recipe = EncoderRecipe(batch=2, layers=1, frozen_blocks=4)
    stage = EncoderStage(CLIPS, space, books, recipe, CPU)
    frozen = stage.network.encoder.block[1].block[4].conv.weight.clone()  # type: ignore[index,union-attr]

    descend(stage, "loss", steps=3)

    assert torch.equal(stage.network.encoder.block[1].block[4].conv.weight, frozen)  # type: ignore[index,union-attr]
    assert 2 <= len(stage._kept) <= 4


def test_an_encoder_may_begin_as_another_checkpoint_s(books: list[Book], tmp_path: Path) -> None:
    config = codec_config(num_books=3, book_size=16, decoder_dim=32, layers=1)
    donor, decoder, taker = build_encoder(config), build_decoder(config), build_encoder(config)
    for half in (donor, decoder):
        set_books(half, books)
    write_codec(tmp_path / "codec.pth", donor, decoder)
    own_norm = taker.quantizer.pre_module.norm.weight.detach().clone()

    copy_encoder(taker, tmp_path)

    mine, theirs = taker.encoder.block[0].conv.weight, donor.encoder.block[0].conv.weight  # type: ignore[union-attr]
    assert torch.allclose(mine, theirs, rtol=2e-3, atol=2e-4)  # type: ignore[arg-type]
    assert torch.equal(taker.quantizer.pre_module.norm.weight, own_norm)
    assert load_encoder(tmp_path, "cpu").config == config


def test_the_decoder_comes_nearer_to_the_wave(space: LatentSpace, books: list[Book]) -> None:
    codes = [
        encode_latents(books, space.latents(clip), space.codes_of(clip.states)) for clip in CLIPS
    ]
    recipe = DecoderRecipe(batch=2, frames=3, context=2, decoder_dim=32, layers=1)
    before, after = descend(DecoderStage(CLIPS, codes, books, recipe, CPU), "loss", steps=30)
    assert after < 0.95 * before
    codes = [torch.zeros(3, clip.num_frames + 1, dtype=torch.int64) for clip in CLIPS]
    with pytest.raises(RunFolderError, match="other speech"):
        DecoderStage(CLIPS, codes, books, DecoderRecipe(layers=1), CPU)


def test_an_encoder_hears_one_code_matrix_a_clip(books: list[Book]) -> None:
    encoder, clip = build_encoder(codec_config(num_books=3, book_size=16, layers=1)), make_clip()
    set_books(encoder, books)
    codes = heard_codes(encoder, clip)
    assert codes.shape == (3, clip.num_frames)
    assert 0 <= int(codes.min()) <= int(codes.max()) < 16


def test_twice_the_rate_keeps_the_tone() -> None:
    times = [np.arange(rate // 10) / rate for rate in (22050, 44100)]
    given, wanted = (np.sin(2 * np.pi * 1000 * each) for each in times)
    found = upsample(torch.from_numpy(given).float()[None])[0].numpy()
    assert np.abs(found - wanted)[100:-100].max() < 0.01


SIZES = LMSizes(codes=16, num_codebooks=3, dim=32, layers=2, head_dim=16, ffn=48, fast_ffn=32)


@pytest.fixture(scope="module")
def checkpoint(books: list[Book], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny model whose codec holds the books."""
    torch.manual_seed(0)
    config = codec_config(num_books=3, book_size=16, decoder_dim=32, layers=1)
    encoder, decoder = build_encoder(config), build_decoder(config)
    for half in (encoder, decoder):
        set_books(half, books)
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
