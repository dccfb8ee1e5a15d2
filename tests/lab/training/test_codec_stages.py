"""A few steps of encoder and decoder lower what they are judged by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lab.training.codebooks import Book, LatentSpace, encode_latents, fit_books, fit_latent_space
from lab.training.codec_network import build_decoder, build_encoder, codec_config, set_books
from lab.training.codes_stage import heard_codes
from lab.training.decoder_stage import DecoderRecipe, DecoderStage
from lab.training.encoder_stage import EncoderRecipe, EncoderStage, copy_encoder
from lab.training.export import write_codec
from lab.training.shards import RunFolderError
from lab.training.synthesis import upsample
from synth.engine.codec.load import load_encoder
from tests.lab.training.clips import make_clip, make_clips

CPU = torch.device("cpu")
CLIPS = make_clips(30)


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    """Return a space fitted to the clips."""
    return fit_latent_space(CLIPS, num_states=16)


@pytest.fixture(scope="module")
def books(space: LatentSpace) -> list[Book]:
    """Return three books of sixteen rows."""
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


def test_frozen_blocks_stay_and_are_run_once_a_clip(space: LatentSpace, books: list[Book]) -> None:
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
    stage = DecoderStage(CLIPS, codes, books, recipe, CPU)

    before, after = descend(stage, "loss", steps=30)

    assert after < 0.95 * before


def test_codes_of_other_clips_are_refused(space: LatentSpace, books: list[Book]) -> None:
    codes = [torch.zeros(3, clip.num_frames + 1, dtype=torch.int64) for clip in CLIPS]
    with pytest.raises(RunFolderError, match="other speech"):
        DecoderStage(CLIPS, codes, books, DecoderRecipe(layers=1), CPU)


def test_an_encoder_hears_one_code_matrix_a_clip(books: list[Book]) -> None:
    encoder = build_encoder(codec_config(num_books=3, book_size=16, layers=1))
    set_books(encoder, books)
    clip = make_clip(frames=5)

    codes = heard_codes(encoder, clip)

    assert codes.shape == (3, clip.num_frames)
    assert 0 <= int(codes.min()) <= int(codes.max()) < 16


def test_twice_the_rate_keeps_the_tone() -> None:
    times = np.arange(2205) / 22050
    tone = torch.from_numpy(np.sin(2 * np.pi * 1000 * times)).float()[None]
    wanted = np.sin(2 * np.pi * 1000 * np.arange(4410) / 44100)

    found = upsample(tone)[0].numpy()

    assert np.abs(found - wanted)[100:-100].max() < 0.01
