"""Batches for the language model are the engine's own prompts, with the right targets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lab.golden.generate import Conversation
from lab.training.codes_stage import CodedClips, fit_quantizer, load_codes, write_codes
from lab.training.lm_network import LMSizes
from lab.training.lm_stage import LMRecipe, LMStage
from lab.training.shards import ALIGNED, RunFolder, shard_path, write_shard
from lab.training.texts import make_tokenizer
from synth.engine.prompt import PromptBuilder, Tokenizer, VoicePrompt
from tests.lab.training.clips import make_clips

SIZES = LMSizes(codes=16, num_codebooks=3, dim=32, layers=2, head_dim=16, ffn=48, fast_ffn=32)


def quiet(line: str) -> None:
    """Drop a line of progress."""


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> CodedClips:
    """Return forty aligned clips as codes."""
    run = RunFolder(tmp_path_factory.mktemp("run"))
    run.speech.mkdir()
    write_shard(shard_path(run.speech, ALIGNED, 0), make_clips(40))
    fit_quantizer(run, num_books=3, size=16, report=quiet)
    write_codes(run, None, quiet)
    return load_codes(run)


@pytest.fixture
def stage(coded: CodedClips) -> LMStage:
    """Return a stage whose batches hold four sequences."""
    return LMStage(coded, SIZES, LMRecipe(batch=4, fast_frames=16), torch.device("cpu"))


def test_codes_and_letters_come_back_by_clip(coded: CodedClips) -> None:
    clip = make_clips(40)[7]
    assert coded.texts[7] == clip.text
    assert coded.codes_of(7).shape == (3, clip.num_frames)
    assert np.allclose(coded.letters_of(7), clip.letters, atol=0.01)


def test_a_sequence_is_the_engine_s_prompt_and_the_answer(
    stage: LMStage, coded: CodedClips
) -> None:
    columns, targets, _ = stage._batch(np.random.default_rng(3), 130)
    tokenizer = Tokenizer(make_tokenizer(SIZES.codes))
    builder = PromptBuilder(tokenizer, num_codebooks=3, codebook_size=16)

    def whole(reference: int, said: int) -> torch.Tensor:
        voice = VoicePrompt(coded.texts[reference], coded.codes_of(reference))
        prompt = Conversation(builder, [voice]).ask(coded.texts[said])
        return torch.cat([prompt, builder.answer(coded.codes_of(said))], 1).t()

    wanted = [whole(reference, said) for reference in range(40) for said in range(40)]
    found = [part for part in wanted if torch.equal(columns[0, : len(part)], part)]

    assert len(found) == 1
    # Behind the answer's last frame comes <|im_end|>, and then a line's end that is not learnt.
    assert int(targets[0, len(found[0]) - 3]) == tokenizer.special.im_end
    assert (targets[0, len(found[0]) - 2 :] == -100).all()


def test_targets_are_the_next_token_where_speech_is(stage: LMStage) -> None:
    columns, targets, _ = stage._batch(np.random.default_rng(4), 130)
    learnt = (targets[:, :-1] != -100).nonzero()

    for row, place in learnt.tolist():
        assert int(targets[row, place]) == int(columns[row, place + 1, 0])
    assert len(learnt) > 20


def test_the_letter_looked_at_is_a_letter_of_the_text(stage: LMStage, coded: CodedClips) -> None:
    columns, _, spoken = stage._batch(np.random.default_rng(5), 130)
    for part in spoken:
        first = int(columns[part.row, part.text_first, 0])
        assert make_tokenizer(SIZES.codes).decode([first]) == "W"
        assert float(part.letters.min()) >= 0


def test_spoilt_input_keeps_text_and_targets(stage: LMStage) -> None:
    columns, _, _ = stage._batch(np.random.default_rng(6), 130)
    spoilt = stage._spoil(columns, np.random.default_rng(7))
    is_frame = stage.network.slow.is_semantic(columns[..., 0])

    assert torch.equal(spoilt[~is_frame], columns[~is_frame])
    assert not torch.equal(spoilt[is_frame], columns[is_frame])
    kept = (spoilt == columns).all(-1)[is_frame].float().mean()
    assert 0.5 < float(kept) < 0.95


def test_the_same_step_gives_the_same_losses(stage: LMStage) -> None:
    first, second = (stage.losses(5, 0.5)["loss"] for _ in range(2))
    assert torch.equal(first, second)


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


def test_shards_written_twice_are_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_shard(shard_path(tmp_path / name, ALIGNED, 0), make_clips(4))

    first, second = (shard_path(tmp_path / name, ALIGNED, 0).read_bytes() for name in ("a", "b"))
    assert len(first) == len(second)
