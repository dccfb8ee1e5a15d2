"""What is trained computes the engine's numbers, on the engine's own prompts."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.golden.generate import Conversation
from lab.training.codebooks import fit_books
from lab.training.codec_network import build_encoder, codec_config
from lab.training.latents import fit_latent_space
from lab.training.lm_network import LMSizes, build_lm, config_json, hidden_states, residual_logits
from lab.training.run_folder import RunFolder
from lab.training.shards import shard_path, write_shard
from lab.training.sound.clips import aligned_clip
from lab.training.sound.pitch import HIGHEST
from lab.training.speakers import Speaker, trained_speaker
from lab.training.stages.hearing import CLIP_FRAMES, Heard, has_heard, hear_clips, load_heard
from lab.training.stages.lm import LMRecipe, LMStage
from lab.training.stages.quantizer import Quantizer
from lab.training.stages.sequences import Sequences
from lab.training.tokens import make_tokenizer
from synth.engine.model.config import parse_config
from synth.engine.model.dual_ar import DualAR, Span
from synth.engine.model.kv_cache import KVCache
from synth.engine.prompt import PromptBuilder, Tokenizer, VoicePrompt
from tests.lab.training.utterances import make_speech, make_utterance

SIZES = LMSizes(codes=12, num_codebooks=4, dim=32, layers=4, head_dim=16, ffn=48, fast_ffn=32)


@pytest.fixture(scope="module")
def models() -> tuple[DualAR, DualAR]:
    torch.manual_seed(0)
    trained = build_lm(SIZES)
    for weight in trained.parameters():
        weight.data.add_(0.05 * torch.randn_like(weight))
    served = copy.deepcopy(trained)
    served.finalize()
    return trained, served


@pytest.fixture(scope="module")
def columns(models: tuple[DualAR, DualAR]) -> torch.Tensor:
    begin = models[0].special.semantic_begin
    columns = torch.zeros(1, 9, 1 + SIZES.num_codebooks, dtype=torch.int64)
    columns[0, :4, 0] = torch.tensor([10, 20, 30, 40])
    columns[0, 4:, 1:] = torch.randint(12, (5, 4), generator=torch.Generator().manual_seed(1))
    columns[0, 4:, 0] = begin + columns[0, 4:, 1]
    return columns


def test_hidden_states_are_the_engine_s(
    models: tuple[DualAR, DualAR], columns: torch.Tensor
) -> None:
    trained, served = models
    text = served.config.text_config
    cache = KVCache.allocate(
        text, num_slots=1, num_positions=16, device=torch.device("cpu"), dtype=torch.float32
    )
    ours, maps = hidden_states(trained, columns)
    theirs = served.slow.prefill(columns[0], [Span(0, 0, 9)], cache)[None]
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert [tuple(each.shape) for each in maps] == [(1, 9, 9)] * 2


def test_residual_logits_are_the_engine_s(
    models: tuple[DualAR, DualAR], columns: torch.Tensor
) -> None:
    trained, served = models
    hidden, codes = torch.randn(3, SIZES.dim), columns[0, 4:7, 1:]
    cache = served.fast.allocate_cache(3)
    ours = residual_logits(trained, hidden, codes)
    theirs = [served.fast.first(hidden, codes[:, 0], cache)]
    theirs += [served.fast.next(codes[:, book], book + 1, cache) for book in range(1, 3)]
    assert torch.allclose(ours, torch.stack(theirs, 1), atol=1e-5)


def test_attention_maps_are_logs_of_shares_of_the_past(
    models: tuple[DualAR, DualAR], columns: torch.Tensor
) -> None:
    _, (first, _) = hidden_states(models[0], columns)
    shares = first[0].exp()
    assert torch.allclose(shares.sum(1), torch.ones(9), atol=1e-5)
    assert float(shares.detach().triu(1).max()) < 1e-6


def test_the_config_says_where_the_semantic_tokens_are() -> None:
    config = parse_config(config_json(SIZES))
    assert config.semantic_end_token_id - config.semantic_start_token_id + 1 == SIZES.codes
    assert config.text_config.vocab_size == config.semantic_end_token_id + 1


CODES = HIGHEST + 1
STAGE_SIZES = LMSizes(
    codes=CODES, num_codebooks=4, dim=32, layers=2, head_dim=16, ffn=48, fast_ffn=32
)
SPEECH = make_speech(42)


@pytest.fixture(scope="module")
def quantizer() -> Quantizer:
    clips = [aligned_clip(said, trained_speaker(said.teacher, n)) for n, said in enumerate(SPEECH)]
    space = fit_latent_space(clips, list(range(len(clips))), num_states=32)
    books = fit_books(space, clips, num_books=4, size=CODES, report=lambda line: None)
    return Quantizer(space, books)


@pytest.fixture
def stage(quantizer: Quantizer) -> LMStage:
    recipe = LMRecipe(positions=600, fast_frames=32)
    return LMStage(SPEECH, [], quantizer, STAGE_SIZES, recipe, torch.device("cpu"))


@pytest.fixture
def sequences(quantizer: Quantizer) -> Sequences:
    return Sequences(SPEECH, [], quantizer, STAGE_SIZES, positions=600)


def text_at(columns: torch.Tensor, first: int) -> str:
    """Return the text of `SPEECH` whose letters stand at a place of a sequence [1 + K, S]."""
    tokenizer = make_tokenizer(CODES)
    for text in {said.text for said in SPEECH}:
        ids = torch.tensor(tokenizer.encode(text).ids)
        if torch.equal(columns[0, first : first + len(ids)], ids):
            return text
    raise AssertionError(f"no text at {first}")


def test_a_sequence_is_the_engine_s_prompt_and_the_answer(sequences: Sequences) -> None:
    tokenizer = Tokenizer(make_tokenizer(CODES))
    builder = PromptBuilder(tokenizer, num_codebooks=4, codebook_size=CODES)
    checked = 0
    for seed in range(4):
        batch = sequences.draw(np.random.default_rng(seed), 1.0)
        for row in range(len(batch.columns)):
            parts = [part for part in batch.spoken if part.row == row]
            if len(parts) < 2:  # the voice is none, or a clip that is not aligned
                continue
            columns = batch.columns[row].t()
            texts = [text_at(columns, part.text_first) for part in parts]
            codes = [
                columns[1:, part.codes_first : part.codes_first + len(part.letters)]
                for part in parts
            ]
            prompt = Conversation(builder, [VoicePrompt(texts[0], codes[0])]).ask(texts[1])
            whole = torch.cat([prompt, builder.answer(codes[1])], 1)
            assert torch.equal(columns[:, : whole.shape[1]], whole)
            # Behind the last frame comes <|im_end|>, and then a line's end that is not learnt.
            assert int(batch.targets[row, whole.shape[1] - 3]) == tokenizer.special.im_end
            assert (batch.targets[row, whole.shape[1] - 2 :] == -100).all()
            checked += 1
    assert checked > 3


def test_targets_are_the_next_token_and_letters_those_of_the_text(sequences: Sequences) -> None:
    batch = sequences.draw(np.random.default_rng(4), 1.0)
    learnt = batch.targets[:, :-1] != -100
    assert torch.equal(batch.targets[:, :-1][learnt], batch.columns[:, 1:, 0][learnt])
    assert int(learnt.sum()) > 20
    for part in batch.spoken:
        text = text_at(batch.columns[part.row].t(), part.text_first)
        assert 0 <= float(part.letters.min()) <= float(part.letters.max()) < len(text)


def test_what_is_held_out_is_never_drawn_to_train(sequences: Sequences) -> None:
    drawn: dict[bool, set[str]] = {True: set(), False: set()}
    for held_out in drawn:
        for seed in range(15):
            batch = sequences.draw(np.random.default_rng(seed), 1.0, held_out=held_out)
            drawn[held_out] |= {
                text_at(batch.columns[part.row].t(), part.text_first) for part in batch.spoken
            }
    unseen = {said.text for said in SPEECH[-2:]}
    assert drawn[True] == unseen
    assert not drawn[False] & unseen and len(drawn[False]) > 15


def test_a_batch_keeps_to_its_positions(sequences: Sequences) -> None:
    for seed in range(8):
        rows, width = sequences.draw(np.random.default_rng(seed), 1.0).columns.shape[:2]
        assert rows == 2 or (rows - 1) * width < 2 * 600


def test_sentences_grow_with_the_curriculum(quantizer: Quantizer) -> None:
    speech = [make_utterance(seed, words=1 + seed % 12) for seed in range(240)]
    sequences = Sequences(speech, [], quantizer, STAGE_SIZES, positions=600)
    longest = []
    for grown in (0.0, 1.0):
        batches = [sequences.draw(np.random.default_rng(seed), grown) for seed in range(12)]
        spoken = [part for batch in batches for part in batch.spoken]
        longest.append(max(len(part.letters) for part in spoken))
    assert longest[0] < 30 < 50 < longest[1]


def test_a_heard_clip_is_followed_by_its_own_speaker(quantizer: Quantizer) -> None:
    marked = torch.full((4, 30), 7, dtype=torch.int16)
    high = Speaker("high", "slt", 1, 3, 1, 1)
    sequences = Sequences(SPEECH, [Heard("Aha.", high, marked)], quantizer, STAGE_SIZES, 600)
    builder = PromptBuilder(Tokenizer(make_tokenizer(CODES)), num_codebooks=4, codebook_size=CODES)
    prompt = builder.system([VoicePrompt("Aha.", marked.long())])
    pitches: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(30):
        batch = sequences.draw(np.random.default_rng(seed), 1.0)
        for part in batch.spoken:
            row = batch.columns[part.row].t()
            codes = row[2, part.codes_first : part.codes_first + len(part.letters)]
            is_heard = torch.equal(row[:, : prompt.shape[1]], prompt)
            pitches[is_heard].append(float(codes.float().mean()))
    assert len(pitches[True]) > 5 and len(pitches[False]) > 5
    assert min(pitches[True]) > max(pitches[False])


def test_clips_are_heard_once_and_kept(tmp_path: Path) -> None:
    run, encoder = RunFolder(tmp_path), build_encoder(codec_config(num_books=4, book_size=CODES))
    run.speech.mkdir()
    for number in range(2):
        write_shard(shard_path(run.speech, number), SPEECH[number::2])
    assert not has_heard(run)

    hear_clips(run, encoder, 6, lambda line: None)

    heard, texts = load_heard(run), {said.text for said in SPEECH}
    assert has_heard(run) and len(heard) == 6
    for clip in heard:
        assert clip.text in texts and clip.codes.shape[0] == 4
        assert CLIP_FRAMES[0] * 0.8 < clip.codes.shape[1] < CLIP_FRAMES[1] * 1.2
    assert {clip.speaker.is_teacher for clip in heard} == {True, False}


def test_a_step_gives_the_same_losses_again(stage: LMStage) -> None:
    first, second = (stage.losses(5, 0.5) for _ in range(2))
    assert {name: float(value.detach()) for name, value in first.items()} == {
        name: float(value.detach()) for name, value in second.items()
    }
    assert set(stage.held_out()) >= {"semantic", "residual", "pitch", "phase", "attention"}


def test_spoilt_input_keeps_text_and_targets(stage: LMStage, sequences: Sequences) -> None:
    columns = sequences.draw(np.random.default_rng(6), 1.0).columns
    spoilt = stage._spoil(columns, np.random.default_rng(7))
    is_frame = stage.network.lm.slow.is_semantic(columns[..., 0])
    assert torch.equal(spoilt[~is_frame], columns[~is_frame])
    assert not torch.equal(spoilt[is_frame], columns[is_frame])
    whole, pitches = (
        (spoilt == columns)[is_frame][:, part].all(-1).float().mean()
        for part in (slice(None), slice(0, 3))
    )
    assert 0.5 < float(whole) < float(pitches) < 0.99


def test_a_few_steps_lower_the_loss(stage: LMStage) -> None:
    optimiser = torch.optim.AdamW(stage.network.parameters(), lr=3e-3)
    losses = []
    for step in range(25):
        loss = stage.losses(step, 0.5)["loss"]
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
