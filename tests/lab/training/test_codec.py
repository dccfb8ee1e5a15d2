"""Encoder and decoder are the engine's, learn, and load in the engine when exported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from safetensors import safe_open

from lab.training.codebooks import add_books, decode_latents, encode_clip, fit_books
from lab.training.codec_network import (
    TaughtDecoder,
    TrainedSnake,
    build_decoder,
    build_encoder,
    codec_config,
    set_books,
)
from lab.training.export import export_checkpoint, export_run, unfolded
from lab.training.latents import fit_latent_space
from lab.training.lm_network import (
    LM_FILE,
    LMSizes,
    build_lm,
    hidden_states,
    residual_logits,
)
from lab.training.plans import Plan
from lab.training.run_folder import RunFolder, RunFolderError
from lab.training.sound.clips import aligned_clip
from lab.training.sound.pitch import HIGHEST
from lab.training.sound.spectral_loss import SpectralLoss
from lab.training.speakers import trained_speaker
from lab.training.stages.decoder import DecoderRecipe, DecoderStage
from lab.training.stages.encoder import EncoderRecipe, EncoderStage
from lab.training.stages.head import HeadRecipe, HeadStage, TuneStage
from lab.training.stages.phases import PhaseRecipe, PhaseStage
from lab.training.stages.quantizer import Quantizer, save_quantizer
from lab.training.stages.windows import CONTEXT, WindowSource, spoil_sound
from lab.training.starting import (
    codec_weights,
    read_quantizer,
    take_over,
    take_over_lm,
    write_space,
)
from synth.contract import Reference, RenderSpec, Sampling
from synth.engine import Engine, EngineConfig
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import Snake
from synth.engine.codec.load import load_decoder, load_encoder
from synth.engine.codec.stages import VectorQuantizer
from tests.lab.training.utterances import make_speech

BOOK_SIZE = HIGHEST + 1
CONFIG = codec_config(num_books=4, book_size=BOOK_SIZE, decoder_dim=32, layers=1)


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
SPEECH = make_speech(30)


@pytest.fixture(scope="module")
def quantizer() -> Quantizer:
    clips = [aligned_clip(said, trained_speaker(said.teacher, n)) for n, said in enumerate(SPEECH)]
    space = fit_latent_space(clips, list(range(len(clips))), num_states=32)
    books = fit_books(space, clips, num_books=4, size=BOOK_SIZE, report=lambda line: None)
    return Quantizer(space, books)


Trained = EncoderStage | DecoderStage | HeadStage | PhaseStage  # TuneStage is a HeadStage


def descend(stage: Trained, name: str, steps: int) -> tuple[float, float]:
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


def test_the_encoder_comes_nearer_to_the_latents(quantizer: Quantizer) -> None:
    recipe = EncoderRecipe(batch=2, frames=10)
    stage = EncoderStage(SPEECH, quantizer, CONFIG, recipe, CPU)
    before, after = descend(stage, "lost", steps=8)
    assert after < 0.95 * before

    # Frozen blocks stay.
    recipe = EncoderRecipe(batch=2, frames=10, frozen_blocks=4)
    stage = EncoderStage(SPEECH, quantizer, CONFIG, recipe, CPU)
    first, last = (stage.network.encoder.block[block] for block in (0, -1))
    kept, learnt = first.conv.weight.clone(), last.conv.weight.clone()  # type: ignore[operator,union-attr]

    descend(stage, "loss", steps=2)

    assert torch.equal(first.conv.weight, kept)  # type: ignore[arg-type,union-attr]
    assert not torch.equal(last.conv.weight, learnt)  # type: ignore[arg-type,union-attr]


def test_a_batch_s_waves_are_teachers_and_made_ones(quantizer: Quantizer) -> None:
    recipe = EncoderRecipe(batch=40, frames=8, teacher_share=0.6)
    stage = EncoderStage(SPEECH, quantizer, CONFIG, recipe, CPU)
    batch = stage._batch(np.random.default_rng(0))
    assert batch.waves.shape == (40, 8 * 640)
    assert 0.4 < float(batch.is_teacher.float().mean()) < 0.8
    assert batch.latents.shape == (40, 8, 128) and batch.states.shape == (40, 8)
    assert torch.equal(batch.waves, stage._batch(np.random.default_rng(0)).waves)


def test_phases_and_features_are_read_off_the_latents(quantizer: Quantizer) -> None:
    stage = PhaseStage(SPEECH, quantizer, CONFIG, PhaseRecipe(batch=4, frames=4), CPU)
    before, after = descend(stage, "features", steps=15)
    assert after < 0.9 * before
    # Pitches of one clip move from draw to draw; its sound stays.
    rng = np.random.default_rng(0)
    stage._clips = stage._clips[:1]
    drawn = [stage._draw(rng) for _ in range(12)]
    assert len({int(window.pitches[0]) for window in drawn}) > 4
    for window in drawn:
        assert torch.equal(window.pitches[-4:].long(), window.codes[1, -4:])


def test_the_head_comes_nearer_to_the_wave(quantizer: Quantizer) -> None:
    stage = HeadStage(SPEECH, quantizer, CONFIG, HeadRecipe(batch=2, frames=3), CPU)
    before, after = descend(stage, "loss", steps=25)
    assert after < 0.8 * before
    assert torch.equal(stage.losses(3, 0.5)["mel"], stage.losses(3, 0.5)["mel"])


def test_the_decoder_comes_nearer_to_the_head(quantizer: Quantizer) -> None:
    taught = TaughtDecoder(CONFIG, quantizer.books)
    torch.nn.init.normal_(taught.head.weight, std=0.1)  # else there is nothing to hear
    stage = DecoderStage(SPEECH, quantizer, CONFIG, DecoderRecipe(batch=2, frames=3), CPU)
    stage.take_latents(taught.state_dict(), fresh=True)
    kept = {name: weight.clone() for name, weight in stage.network.state_dict().items()}

    before, after = descend(stage, "loss", steps=25)

    assert after < 0.8 * before
    after_all = stage.network.state_dict()
    moved = {name for name, weight in after_all.items() if (weight != kept[name]).any()}
    assert moved and all(name.startswith("decoder.decoder.") for name in moved)
    stage.take_latents(taught.state_dict(), fresh=False)
    assert all(
        torch.equal(weight, taught.state_dict()[name])
        for name, weight in stage.network.state_dict().items()
    )


def test_all_layers_of_a_decoder_are_tuned_and_its_codebooks_stay(quantizer: Quantizer) -> None:
    recipe = HeadRecipe(batch=2, frames=3, reading_weight=0.0)
    stage = TuneStage(SPEECH, quantizer, CONFIG, recipe, CPU)
    before, after = descend(stage, "loss", steps=25)
    assert after < 0.9 * before
    untrained = {
        name
        for name, weight in stage.network.decoder.named_parameters()
        if not weight.requires_grad
    }
    assert untrained and all(".quantizers." in name for name in untrained)


def test_a_sound_s_level_is_compared_over_a_frame_s_time() -> None:
    loss, rng = SpectralLoss(), torch.Generator().manual_seed(0)
    noise, other = (0.1 * torch.randn(2, 6400, generator=rng) for _ in range(2))
    silence = torch.zeros_like(noise)
    same = loss(other, silence, noise)  # another noise of the same strength
    quieter = loss(0.7 * other, silence, noise)  # by 3 dB
    assert float(same["level"]) < 0.17
    assert float(quieter["level"]) > float(same["level"]) + 0.1


def test_a_window_sounds_as_its_codes_say(quantizer: Quantizer) -> None:
    frames = 4
    source, rng = WindowSource(SPEECH, quantizer, frames), np.random.default_rng(1)
    for _ in range(8):
        window = source.draw(rng)
        latents = decode_latents(quantizer.books, window.codes)
        wanted = quantizer.space.rows_of(latents)[-4 * (frames + 1) :]
        assert window.codes.shape[1] == frames + CONTEXT
        assert torch.allclose(window.rows[1:], wanted, atol=1e-3)
        assert torch.equal(window.pitches[-frames:].long(), window.codes[1, -frames:])


def test_spoilt_codes_keep_state_pitch_and_phase() -> None:
    codes = torch.arange(8 * 50).view(8, 50)
    spoilt = [spoil_sound(codes, np.random.default_rng(seed)) for seed in range(60)]
    assert all(torch.equal(each[:3], codes[:3]) for each in spoilt)
    changed = [not torch.equal(each, codes) for each in spoilt]
    assert 0.1 < np.mean(changed) < 0.5


def test_layers_of_the_waveform_get_what_the_head_was_given(quantizer: Quantizer) -> None:
    taught = TaughtDecoder(CONFIG, quantizer.books)
    latents = taught.decoder.quantizer(torch.zeros(1, 4, 5, dtype=torch.int64))
    assert latents.shape[-1] == 5 * taught.positions
    assert taught.listen(latents).shape == taught.speak(latents).shape == (1, 5 * 640)
    assert taught.read(latents).shape == (1, 5 * taught.positions, 39)
    assert taught.read_rows(torch.zeros(1, 4, 5, dtype=torch.int64)).shape == (1, 5 * 4, 39)


SIZES = LMSizes(
    codes=BOOK_SIZE, num_codebooks=4, dim=32, layers=2, head_dim=16, ffn=48, fast_ffn=32
)


@pytest.fixture(scope="module")
def checkpoint(quantizer: Quantizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tiny model whose codec holds the books."""
    torch.manual_seed(0)
    encoder, decoder = build_encoder(CONFIG), build_decoder(CONFIG)
    for half in (encoder, decoder):
        set_books(half, quantizer.books)
    folder = tmp_path_factory.mktemp("checkpoint")
    export_checkpoint(folder, SIZES, build_lm(SIZES).state_dict(), encoder, decoder)
    write_space(folder, quantizer.space)
    return folder


def test_the_engine_loads_it_and_streams_what_it_renders(checkpoint: Path) -> None:
    engine = Engine.load(EngineConfig(checkpoint, device="cpu", dtype="float32", slots=1))
    try:
        codes = engine.encode_reference(np.ones(6400, np.float32) * 0.1, 16000)
        spec = RenderSpec("A b.", Reference("C.", codes), Sampling(max_frames=9, seed=1))
        whole = engine.render(spec)
        pieces = list(engine.stream(spec))
    finally:
        engine.close()
    assert (engine.sample_rate, engine.frame_rate) == (16000, 25)
    assert codes.shape == (4, 10)
    assert len(whole.audio) == 640 * whole.codes.shape[1]
    assert len(pieces) > 1
    assert np.array_equal(np.concatenate(pieces), whole.audio)


def test_the_engine_speaks_with_the_codebooks(checkpoint: Path, quantizer: Quantizer) -> None:
    latents = torch.cat(
        [quantizer.space.latents(aligned_clip(SPEECH[0], trained_speaker("slt", 0)), 0)]
    )
    encoder, decoder = load_encoder(checkpoint, "cpu"), load_decoder(checkpoint, "cpu")
    semantic = cast("VectorQuantizer", encoder.quantizer.semantic_quantizer.quantizers[0])
    pitch = cast("VectorQuantizer", encoder.quantizer.quantizer.quantizers[0])
    sound = cast("VectorQuantizer", decoder.quantizer.quantizer.quantizers[2])

    for step, book in ((semantic, quantizer.books[0]), (pitch, quantizer.books[1])):
        found = step.search(latents.t()[None])[0]
        assert (found == book.search(latents)).float().mean() > 0.95

    codes = torch.arange(BOOK_SIZE)
    looked_up = sound.lookup(codes[None])[0].t()
    assert torch.allclose(looked_up, quantizer.books[3].lookup(codes), atol=2e-2)


@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_the_engine_decodes_as_the_recipe_does(
    checkpoint: Path, quantizer: Quantizer, kernels: str
) -> None:
    said = SPEECH[1]
    codes = encode_clip(*quantizer, aligned_clip(said, trained_speaker(said.teacher, 0)), 0)
    taught = TaughtDecoder(CONFIG, quantizer.books)
    taught.decoder.load_state_dict(codec_weights(checkpoint, CodecDecoder))
    with torch.inference_mode():
        ours = taught.speak(taught.decoder.quantizer(codes[None]))[0]
        theirs = load_decoder(checkpoint, "cpu", kernels=kernels).decode([codes])[0]
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_checkpoint_can_be_trained_further(checkpoint: Path, quantizer: Quantizer) -> None:
    space, books = read_quantizer(checkpoint)
    clip = aligned_clip(SPEECH[2], trained_speaker("awb", 5))
    before, after = encode_clip(*quantizer, clip, 1), encode_clip(space, books, clip, 1)
    assert space.states == quantizer.space.states
    assert float((before == after).float().mean()) > 0.97  # the codec's file is in float16

    encoder, lm = build_encoder(CONFIG), build_lm(SIZES)
    weights = codec_weights(checkpoint, CodecEncoder)
    take_over(encoder, weights, checkpoint)
    take_over_lm(lm, checkpoint)
    assert all(torch.equal(weight, weights[name]) for name, weight in encoder.named_parameters())

    other = build_lm(LMSizes(codes=BOOK_SIZE, num_codebooks=4, dim=48, layers=2, head_dim=16))
    with pytest.raises(RunFolderError, match="has other sizes than this plan"):
        take_over_lm(other, checkpoint)


def test_a_language_model_goes_on_with_more_layers_and_books(checkpoint: Path) -> None:
    first = build_lm(SIZES)
    take_over_lm(first, checkpoint)
    grown = build_lm(replace(SIZES, num_codebooks=6, layers=4, fast_layers=6))
    take_over_lm(grown, checkpoint)

    codes = torch.randint(1, BOOK_SIZE, (1, 9, 7), generator=torch.Generator().manual_seed(0))
    codes[..., 0] = torch.arange(9)  # texts, which no book is added to
    with torch.inference_mode():
        before, maps = hidden_states(first, codes[..., :5])
        after, grown_maps = hidden_states(grown, codes)
        known = residual_logits(first, before[0], codes[0, :, 1:5])
        more = residual_logits(grown, after[0], codes[0, :, 1:7])
    assert torch.allclose(after, before, atol=1e-5)
    # The layers in the middle, which look at letters, are the same.
    assert torch.allclose(grown_maps[0], maps[0], atol=1e-5)
    assert torch.allclose(more[:, :3], known, atol=1e-4)
    with pytest.raises(RunFolderError, match="has 4 layers, this plan 2"):
        take_over_lm(build_lm(replace(SIZES, fast_layers=2)), checkpoint)


def test_export_takes_what_was_not_trained_from_the_checkpoint(
    checkpoint: Path, quantizer: Quantizer, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    save_quantizer(run, read_quantizer(checkpoint))
    plan = Plan("tiny", shards=0, utterances=0, sizes=SIZES, decoder_dim=32, codec_layers=1)
    lm = {f"lm.{name}": weight for name, weight in build_lm(SIZES).state_dict().items()}
    run.save("lm-state", {"network": lm, "step": 7})
    lines: list[str] = []

    export_run(run, plan, tmp_path, start_from=checkpoint, report=lines.append)

    for half in (CodecEncoder, CodecDecoder):
        before, after = codec_weights(checkpoint, half), codec_weights(tmp_path, half)
        assert set(before) == set(after)
        assert all(torch.allclose(after[name], before[name], atol=5e-3) for name in before)
    with safe_open(str(tmp_path / LM_FILE), "pt") as stored:
        written = stored.get_tensor("audio_decoder.output.weight")
    assert torch.equal(written, lm["lm.fast.output.weight"].to(torch.bfloat16))
    assert lines[:3] == [
        f"export: encoder of {checkpoint}",
        f"export: decoder of {checkpoint}",
        "export: lm of this run, 7 steps",
    ]

    taught = TaughtDecoder(plan.codec, quantizer.books).state_dict()
    for stage, step in (("decoder", 5), ("tune", 3)):  # the newest of the two counts
        run.save(f"{stage}-state", {"network": taught, "step": step})
        export_run(run, plan, tmp_path, start_from=checkpoint, report=lines.append)
        assert f"export: decoder of this run, {step} steps" in lines

    with pytest.raises(RunFolderError, match=r"encoder-state\.pt is missing"):
        export_run(run, plan, tmp_path, start_from=None, report=lines.append)


def test_books_are_added_to_those_of_a_checkpoint(checkpoint: Path) -> None:
    space, books = read_quantizer(checkpoint)
    clips = [aligned_clip(said, trained_speaker(said.teacher, 3)) for said in SPEECH]
    lines: list[str] = []
    more = add_books(space, clips, books, num_books=5, report=lines.append)
    assert [one is other for one, other in zip(more, books, strict=False)] == [True] * 4
    assert len(more) == 5
    left = [float(line.split()[4]) for line in lines]  # "quantizer: book 3 leaves 0.4 of ..."
    assert left[1] < left[0]


def test_a_checkpoint_without_its_latents_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="cannot be trained further"):
        read_quantizer(tmp_path)


def test_a_filter_of_zeros_has_a_direction_and_no_length(quantizer: Quantizer) -> None:
    decoder = build_decoder(CONFIG)
    set_books(decoder, quantizer.books)
    weights = unfolded(decoder)
    norms = weights["quantizer.quantizer.quantizers.0.out_proj.weight_g"]
    directions = weights["quantizer.quantizer.quantizers.0.out_proj.weight_v"]
    assert (norms == 0).any()  # rows of latents that the book of pitches leaves alone
    assert (directions.flatten(1).norm(dim=1) > 0).all()
