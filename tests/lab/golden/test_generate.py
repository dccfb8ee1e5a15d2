"""Test lab.golden.generate: batches, product behaviour against the reference's quirks."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lab.golden.case import GoldenFolder
from lab.golden.generate import CodeRequest, generate_codes, generate_text
from lab.golden.models import Loaded
from synth.contract import FinishReason, Sampling
from synth.engine.errors import InvalidSpecError, NonFiniteLogitsError, PromptTooLongError
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.config import PRODUCT, REFERENCE
from synth.engine.model.dual_ar import DualAR
from synth.engine.prompt import VoicePrompt

GREEDY = Sampling(top_k=1, temperature=1.0, max_frames=64)
CASES = ("no_voice", "one_voice", "two_voices", "stops_early")


@pytest.fixture
def greedy(golden: GoldenFolder) -> dict[str, Tensor]:
    return golden.tensors("greedy")


def test_a_mixed_batch_gives_each_requests_own_greedy_codes(
    loaded: Loaded, greedy: dict[str, Tensor]
) -> None:
    requests = [CodeRequest(greedy[f"{case}.prompt"], GREEDY) for case in CASES]
    batch = generate_codes(loaded.model, requests)
    for case, found in zip(CASES, batch, strict=True):
        assert torch.equal(found.columns, greedy[f"{case}.frames"])


def test_a_mixed_batch_gives_each_requests_own_drawn_codes(
    loaded: Loaded, greedy: dict[str, Tensor]
) -> None:
    samplings = [
        Sampling(seed=1, max_frames=16),
        Sampling(seed=2**62, temperature=1.3, top_p=1.0, top_k=64, max_frames=9),
        Sampling(seed=1, temperature=0.4, top_p=0.5, top_k=3, max_frames=16),
        GREEDY,
    ]
    requests = [
        CodeRequest(greedy[f"{case}.prompt"], sampling)
        for case, sampling in zip(CASES, samplings, strict=True)
    ]

    batch = generate_codes(loaded.model, requests)
    shuffled = generate_codes(loaded.model, requests[::-1])[::-1]

    for request, found, other in zip(requests, batch, shuffled, strict=True):
        alone = generate_codes(loaded.model, [request])[0]
        assert torch.equal(found.columns, alone.columns)
        assert torch.equal(other.columns, alone.columns)
        assert found.finish_reason == alone.finish_reason


def test_looking_less_often_at_the_end_flags_changes_nothing(
    loaded: Loaded, greedy: dict[str, Tensor]
) -> None:
    request = CodeRequest(greedy["stops_early.prompt"], GREEDY)

    often = generate_codes(loaded.model, [request])[0]
    seldom = generate_codes(loaded.model, [request], check_every=7)[0]

    assert torch.equal(often.columns, seldom.columns)
    assert torch.equal(often.codes, seldom.codes)


def test_another_seed_gives_other_codes(loaded: Loaded, greedy: dict[str, Tensor]) -> None:
    prompt = greedy["no_voice.prompt"]
    one, other, again = (
        generate_codes(loaded.model, [CodeRequest(prompt, Sampling(seed=seed, max_frames=8))])[0]
        for seed in (1, 2, 1)
    )
    assert torch.equal(one.codes, again.codes)
    assert not torch.equal(one.codes, other.codes)


def test_the_global_generator_plays_no_part(loaded: Loaded, greedy: dict[str, Tensor]) -> None:
    request = CodeRequest(greedy["no_voice.prompt"], Sampling(seed=3, max_frames=8))

    torch.manual_seed(1)
    one = generate_codes(loaded.model, [request])[0]
    torch.manual_seed(2)
    other = generate_codes(loaded.model, [request])[0]

    assert torch.equal(one.codes, other.codes)


def test_the_last_good_frame_is_kept_when_the_limit_ends_the_run(
    loaded: Loaded, greedy: dict[str, Tensor]
) -> None:
    request = CodeRequest(greedy["no_voice.prompt"], replace(GREEDY, max_frames=5))

    product = generate_codes(loaded.model, [request])[0]
    reference = generate_codes(loaded.model, [request], compat=REFERENCE)[0]

    assert product.codes.shape[1] == 5
    assert product.finish_reason is FinishReason.FRAME_LIMIT
    assert torch.equal(reference.codes, product.codes[:, :4])


def test_one_frame_is_a_result_for_the_product(loaded: Loaded, greedy: dict[str, Tensor]) -> None:
    request = CodeRequest(greedy["no_voice.prompt"], replace(GREEDY, max_frames=1))
    assert generate_codes(loaded.model, [request])[0].codes.shape[1] == 1
    with pytest.raises(InvalidSpecError):
        generate_codes(loaded.model, [request], compat=REFERENCE)


def test_an_end_token_in_the_first_frame_ends_the_run(loaded: Loaded, golden: GoldenFolder) -> None:
    request = CodeRequest(golden.tensors("edge")["end_first.prompt.0"], GREEDY)

    product = generate_codes(loaded.model, [request])[0]

    assert product.finish_reason is FinishReason.END
    assert product.codes.shape[1] == 0
    assert product.columns.shape[1] == 1


def test_the_end_frame_is_not_among_the_codes(loaded: Loaded, greedy: dict[str, Tensor]) -> None:
    request = CodeRequest(greedy["stops_early.prompt"], GREEDY)
    found = generate_codes(loaded.model, [request])[0]
    assert found.finish_reason is FinishReason.END
    assert torch.equal(found.codes, greedy["stops_early.codes"])


def test_a_full_context_is_named(loaded: Loaded, greedy: dict[str, Tensor]) -> None:
    prompt = greedy["no_voice.prompt"]
    found = generate_codes(
        loaded.model, [CodeRequest(prompt, GREEDY)], max_seq_len=prompt.shape[1] + 6
    )[0]
    assert found.finish_reason is FinishReason.CONTEXT_FULL
    assert found.codes.shape[1] == 6


@pytest.fixture
def poisoned(golden: GoldenFolder) -> DualAR:
    """A model whose logits are NaN as soon as code 0 of codebook 1 is heard."""
    model, _ = load_dual_ar(golden.checkpoint, dtype=torch.float32)
    model.slow.codebook_embeddings.weight[0] = float("nan")
    return model


def test_one_poisoned_request_fails_alone(
    loaded: Loaded, poisoned: DualAR, greedy: dict[str, Tensor]
) -> None:
    columns = torch.zeros(11, 3, dtype=torch.int64)
    columns[0] = loaded.tokenizer.special.semantic_begin
    bad = torch.cat([greedy["no_voice.prompt"], columns], dim=1)
    good = CodeRequest(greedy["no_voice.prompt"], replace(GREEDY, max_frames=3))
    expected = generate_codes(loaded.model, [good])[0]

    failed, fine = generate_codes(poisoned, [CodeRequest(bad, GREEDY), good])

    assert failed.finish_reason is None
    assert failed.codes.shape[1] == 0
    with pytest.raises(NonFiniteLogitsError):
        failed.raise_if_failed()
    assert torch.equal(fine.columns, expected.columns)


def test_every_batch_of_a_text_is_spoken_and_heard_by_the_next(loaded: Loaded) -> None:
    sampling = Sampling(seed=4, max_frames=6)
    text = "Before. <|speaker:0|>One.<|speaker:1|>Two."

    found = list(
        generate_text(loaded.model, loaded.tokenizer, text, sampling=sampling, chunk_bytes=20)
    )

    assert len(found) == 3
    for earlier, later in itertools.pairwise(found):
        start = earlier.prompt.shape[1]
        spoken = later.prompt[1:, start : start + earlier.codes.shape[1]]
        assert torch.equal(spoken, earlier.codes)


def test_batches_of_a_text_do_not_repeat_each_others_noise(loaded: Loaded) -> None:
    prompt = torch.zeros(11, 3, dtype=torch.int64)
    sampling = Sampling(seed=4, temperature=1.9, top_p=1.0, top_k=64, max_frames=4)
    first, second = (
        generate_codes(loaded.model, [CodeRequest(prompt, sampling, noise_offset=offset)])[0]
        for offset in (0, 4)
    )
    assert not torch.equal(first.columns, second.columns)


def test_a_prompt_one_position_too_long_is_refused_with_the_numbers(loaded: Loaded) -> None:
    text = "7" * 2040
    with pytest.raises(PromptTooLongError, match="2048"):
        next(generate_text(loaded.model, loaded.tokenizer, text, sampling=GREEDY))


def test_a_voice_without_columns_is_used_as_it_is(loaded: Loaded) -> None:
    voice = VoicePrompt("Hello there.", torch.zeros(10, 0, dtype=torch.int64))
    sampling = replace(GREEDY, max_frames=2)
    (found,) = generate_text(loaded.model, loaded.tokenizer, "x", [voice], sampling=sampling)
    assert found.codes.shape == (10, 2)


def test_a_bfloat16_model_generates_codes_in_range_and_the_same_twice(
    loaded_bf16: Loaded, greedy: dict[str, Tensor]
) -> None:
    request = CodeRequest(greedy["one_voice.prompt"], Sampling(seed=5, max_frames=12))

    one, other = (generate_codes(loaded_bf16.model, [request])[0] for _ in range(2))

    assert torch.equal(one.columns, other.columns)
    assert one.finish_reason is not None
    assert bool(((one.codes >= 0) & (one.codes < 256)).all())
    special = loaded_bf16.tokenizer.special
    assert set(one.columns[0].tolist()) <= {
        special.im_end,
        *range(special.semantic_begin, special.semantic_end + 1),
    }


def test_without_quirks_is_the_default() -> None:
    assert not any(getattr(PRODUCT, name) for name in PRODUCT.__slots__)
    assert all(getattr(REFERENCE, name) for name in REFERENCE.__slots__)
