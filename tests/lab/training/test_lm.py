"""What is trained computes the engine's numbers, on the engine's own prompts."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.golden.generate import Conversation
from lab.training.codes_stage import CodedClips, fit_quantizer, load_codes, write_codes
from lab.training.lm_network import LMSizes, build_lm, config_json, hidden_states, residual_logits
from lab.training.lm_stage import LMRecipe, LMStage
from lab.training.shards import ALIGNED, RunFolder, shard_path, write_shard
from lab.training.tokens import make_tokenizer
from synth.engine.model.config import parse_config
from synth.engine.model.dual_ar import DualAR, Span
from synth.engine.model.kv_cache import KVCache
from synth.engine.prompt import PromptBuilder, Tokenizer, VoicePrompt
from tests.lab.training.clips import make_clips

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


STAGE_SIZES = LMSizes(codes=16, num_codebooks=3, dim=32, layers=2, head_dim=16, ffn=48, fast_ffn=32)


def quiet(line: str) -> None:
    """Drop a line of progress."""


@pytest.fixture(scope="module")
def coded(tmp_path_factory: pytest.TempPathFactory) -> CodedClips:
    run = RunFolder(tmp_path_factory.mktemp("run"))
    run.speech.mkdir()
    write_shard(shard_path(run.speech, ALIGNED, 0), make_clips(40))
    fit_quantizer(run, num_books=3, size=16, report=quiet)
    write_codes(run, None, quiet)
    return load_codes(run)


@pytest.fixture
def stage(coded: CodedClips) -> LMStage:
    return LMStage(coded, STAGE_SIZES, LMRecipe(batch=4, fast_frames=16), torch.device("cpu"))


def test_codes_and_letters_come_back_by_clip(coded: CodedClips) -> None:
    clip = make_clips(40)[7]
    assert coded.texts[7] == clip.text
    assert coded.codes_of(7).shape == (3, clip.num_frames)
    assert np.allclose(coded.letters_of(7), clip.letters, atol=0.01)


def test_a_sequence_is_the_engine_s_prompt_and_the_answer(
    stage: LMStage, coded: CodedClips
) -> None:
    columns, targets, _ = stage._batch(np.random.default_rng(3), 130)
    tokenizer = Tokenizer(make_tokenizer(STAGE_SIZES.codes))
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


def test_targets_are_the_next_token_and_a_step_gives_the_same_losses(stage: LMStage) -> None:
    columns, targets, spoken = stage._batch(np.random.default_rng(4), 130)
    learnt = targets[:, :-1] != -100
    assert torch.equal(targets[:, :-1][learnt], columns[:, 1:, 0][learnt])
    assert int(learnt.sum()) > 20
    first, second = (stage.losses(5, 0.5)["loss"] for _ in range(2))
    assert torch.equal(first, second)
    for part in spoken:  # the letter looked at is a letter of the text
        letter = int(columns[part.row, part.text_first, 0])
        assert make_tokenizer(STAGE_SIZES.codes).decode([letter]) == "W"
        assert float(part.letters.min()) >= 0


def test_spoilt_input_keeps_text_and_targets(stage: LMStage) -> None:
    columns, _, _ = stage._batch(np.random.default_rng(6), 130)
    spoilt = stage._spoil(columns, np.random.default_rng(7))
    is_frame = stage.network.slow.is_semantic(columns[..., 0])
    assert torch.equal(spoilt[~is_frame], columns[~is_frame])
    assert not torch.equal(spoilt[is_frame], columns[is_frame])
    kept = (spoilt == columns).all(-1)[is_frame].float().mean()
    assert 0.5 < float(kept) < 0.95


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
    sizes = set()
    for name in ("a", "b"):
        path = shard_path(tmp_path / name, ALIGNED, 0)
        path.parent.mkdir()
        write_shard(path, make_clips(4))
        sizes.add(path.stat().st_size)
    assert len(sizes) == 1
