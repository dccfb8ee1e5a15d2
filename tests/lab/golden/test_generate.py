"""Test lab.golden.generate: batches, and what this engine does that the reference does not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lab.golden.case import GoldenFolder
from lab.golden.generate import (
    CodeRequest,
    Generation,
    generate_codes,
    generate_text,
    group_turns_into_batches,
    split_into_batches,
    split_text_by_speaker,
)
from lab.golden.models import Loaded
from synth.contract import FinishReason, Sampling
from synth.engine.errors import InvalidSpecError, PromptTooLongError
from synth.engine.prompt import VoicePrompt

GREEDY = Sampling(top_k=1, temperature=1.0, max_frames=64)
CASES = ("no_voice", "one_voice", "two_voices", "stops_early")


@pytest.fixture
def greedy(golden: GoldenFolder) -> dict[str, Tensor]:
    return golden.tensors("greedy")


def test_a_mixed_batch_gives_each_requests_own_codes(
    loaded: Loaded, greedy: dict[str, Tensor]
) -> None:
    requests = [CodeRequest(greedy[f"{case}.prompt"], GREEDY) for case in CASES]
    for case, found in zip(CASES, generate_codes(loaded.model, requests), strict=True):
        assert torch.equal(found.columns, greedy[f"{case}.frames"])

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


def one(loaded: Loaded, prompt: Tensor, sampling: Sampling, **options: Any) -> Generation:
    """Return what one request gives by itself."""
    return generate_codes(loaded.model, [CodeRequest(prompt, sampling)], **options)[0]


def test_looking_less_often_at_the_end_flags_changes_nothing(
    loaded: Loaded, greedy: dict[str, Tensor]
) -> None:
    prompt = greedy["stops_early.prompt"]
    often, seldom = one(loaded, prompt, GREEDY), one(loaded, prompt, GREEDY, check_every=7)
    assert torch.equal(often.columns, seldom.columns)
    assert torch.equal(often.codes, seldom.codes)
    # The frame of the end is not among the codes.
    assert often.finish_reason is FinishReason.END
    assert torch.equal(often.codes, greedy["stops_early.codes"])


def test_seeds_alone_decide_the_codes(loaded: Loaded, greedy: dict[str, Tensor]) -> None:
    found = []
    for seed, ours in ((1, 1), (2, 1), (1, 2)):
        torch.manual_seed(ours)  # the global generator plays no part
        found.append(one(loaded, greedy["no_voice.prompt"], Sampling(seed=seed, max_frames=8)))
    assert torch.equal(found[0].codes, found[2].codes)
    assert not torch.equal(found[0].codes, found[1].codes)


def test_the_last_good_frame_is_kept_when_the_limit_ends_the_run(
    loaded: Loaded, greedy: dict[str, Tensor]
) -> None:
    prompt, limited = greedy["no_voice.prompt"], replace(GREEDY, max_frames=5)
    product = one(loaded, prompt, limited)
    reference = one(loaded, prompt, limited, like_reference=True)
    assert product.codes.shape[1] == 5
    assert product.finish_reason is FinishReason.FRAME_LIMIT
    assert torch.equal(reference.codes, product.codes[:, :4])
    single = replace(GREEDY, max_frames=1)  # is a result for the product
    assert one(loaded, prompt, single).codes.shape[1] == 1
    with pytest.raises(InvalidSpecError):
        one(loaded, prompt, single, like_reference=True)


def test_an_end_in_the_first_frame_and_a_full_context_are_named(
    loaded: Loaded, golden: GoldenFolder, greedy: dict[str, Tensor]
) -> None:
    ended = one(loaded, golden.tensors("edge")["end_first.prompt.0"], GREEDY)
    assert ended.finish_reason is FinishReason.END
    assert (ended.codes.shape[1], ended.columns.shape[1]) == (0, 1)
    prompt = greedy["no_voice.prompt"]
    full = one(loaded, prompt, GREEDY, max_seq_len=prompt.shape[1] + 6)
    assert full.finish_reason is FinishReason.CONTEXT_FULL
    assert full.codes.shape[1] == 6


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


def test_a_prompt_too_long_is_refused_and_a_voice_without_columns_is_used(loaded: Loaded) -> None:
    with pytest.raises(PromptTooLongError, match="2048"):
        next(generate_text(loaded.model, loaded.tokenizer, "7" * 2040, sampling=GREEDY))
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


TAGGED = "  Once upon a time. <|speaker:1|> Yes. <|speaker:0|>No."


@pytest.mark.parametrize(
    ("text", "drops", "turns"),
    [
        (TAGGED, False, ["Once upon a time.", "<|speaker:1|> Yes.", "<|speaker:0|>No."]),
        (TAGGED, True, ["<|speaker:1|> Yes.", "<|speaker:0|>No."]),
        (" \n<|speaker:0|>Hi.", False, ["<|speaker:0|>Hi."]),  # white space is no turn
        ("<|speaker:٣|>a<|speaker:1|>b", False, ["<|speaker:٣|>a", "<|speaker:1|>b"]),
    ],
)
def test_a_text_is_cut_at_its_tags(text: str, drops: bool, turns: list[str]) -> None:
    assert split_text_by_speaker(text, drop_leading_text=drops) == turns


def test_turns_are_grouped_and_no_text_is_lost_between_batches() -> None:
    text = TAGGED + "<|speaker:2|>" + "long " * 40
    batches = split_into_batches(text, chunk_bytes=30)
    assert "".join(batches).replace("\n", "").replace(" ", "") == text.replace(" ", "")
    assert split_into_batches("x" * 5000, chunk_bytes=10) == ["x" * 5000]  # untagged: one batch
    # A turn above the limit goes alone.
    assert group_turns_into_batches(["aaaa", "bb", "c"], max_bytes=3) == ["aaaa", "bb\nc"]
