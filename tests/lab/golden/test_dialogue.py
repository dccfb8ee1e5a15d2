"""Test lab.golden.generate; the golden `text` and `prompts` cases pin the rest."""

from __future__ import annotations

from lab.golden.generate import group_turns_into_batches, split_into_batches, split_text_by_speaker

TAGGED = "  Once upon a time. <|speaker:1|> Yes. <|speaker:0|>No."


def test_text_before_the_first_tag_is_kept() -> None:
    turns = split_text_by_speaker(TAGGED)
    assert turns == ["Once upon a time.", "<|speaker:1|> Yes.", "<|speaker:0|>No."]


def test_text_before_the_first_tag_is_dropped_on_request() -> None:
    turns = split_text_by_speaker(TAGGED, drop_leading_text=True)
    assert turns == ["<|speaker:1|> Yes.", "<|speaker:0|>No."]


def test_white_space_before_the_first_tag_is_no_turn() -> None:
    assert split_text_by_speaker(" \n<|speaker:0|>Hi.") == ["<|speaker:0|>Hi."]


def test_digits_of_other_scripts_make_a_tag() -> None:
    assert len(split_text_by_speaker("<|speaker:٣|>a<|speaker:1|>b")) == 2


def test_untagged_text_is_one_batch_however_long() -> None:
    assert split_into_batches("x" * 5000, chunk_bytes=10) == ["x" * 5000]


def test_no_text_is_lost_between_batches() -> None:
    text = TAGGED + "<|speaker:2|>" + "long " * 40
    batches = split_into_batches(text, chunk_bytes=30)
    assert "".join(batches).replace("\n", "").replace(" ", "") == text.replace(" ", "")


def test_a_turn_above_the_limit_goes_alone() -> None:
    assert group_turns_into_batches(["aaaa", "bb", "c"], max_bytes=3) == ["aaaa", "bb\nc"]
