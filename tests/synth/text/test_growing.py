"""A text that is still being written is given out sentence by sentence, and all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from synth.text.segments import MOST_UNFINISHED_CHARS, GrowingText


def passages(pieces: list[str], language: str = "en") -> Iterator[tuple[str, int]]:
    """Yield what is given out after each piece, and at the end."""
    text = GrowingText(language)
    for piece in pieces:
        text.add(piece)
        if (passage := text.take()) is not None:
            yield passage.text, passage.pause_after_ms
    text.end()
    if (passage := text.take()) is not None:
        yield passage.text, passage.pause_after_ms


@pytest.mark.parametrize(
    ("pieces", "given_out"),
    [
        (["Good mor", "ning. The", " kettle is on."], ["Good morning.", "The kettle is on."]),
        (["It costs 3", ".", "14 euros.", " Yes."], ["It costs 3.14 euros.", "Yes."]),
        (["Dr", ".", " Gray came. He", " sat."], ["Dr. Gray came.", "He sat."]),
        (["One. Two. Three. Fo", "ur"], ["One. Two. Three.", "Four"]),
        (["A heading\n", "Text"], ["A heading", "Text"]),
        (["私は行った。", "彼は来た。"], ["私は行った。", "彼は来た。"]),
        (["🙂", " ...", "\n\n"], []),
        ([], []),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_sentence_is_given_out_once_another_one_begins(
    pieces: list[str], given_out: list[str]
) -> None:
    assert [text for text, _ in passages(pieces)] == given_out


def test_pause_after_a_paragraph_is_longer_than_after_a_sentence() -> None:
    assert list(passages(["One. Tw", "o.\n", "Three"])) == [
        ("One.", 300),
        ("Two.", 700),
        ("Three", 300),
    ]


@pytest.mark.parametrize(
    ("written", "given_out"),
    [("Let me look.", "Let me look."), ("“Yes.”", "“Yes.”"), ("Let me", None), ("", None)],
)
def test_end_of_a_sentence_is_believed_after_a_while(written: str, given_out: str | None) -> None:
    text = GrowingText("en")
    text.add(written)
    assert text.take() is None
    text.end_sentence()
    passage = text.take()
    assert (passage.text if passage else None) == given_out


@pytest.mark.parametrize("word", ["word ", "x"])
def test_text_without_an_end_is_cut_and_nothing_of_it_is_lost(word: str) -> None:
    text, taken = GrowingText("en"), ""
    for _ in range(3 * MOST_UNFINISHED_CHARS):
        text.add(word)
        passage = text.take()
        taken += passage.text + (" " if word.endswith(" ") else "") if passage else ""
    assert len(taken) >= 2 * MOST_UNFINISHED_CHARS
    text.end()
    last = text.take()
    assert last is not None
    assert (taken + last.text).strip() == (word * 3 * MOST_UNFINISHED_CHARS).strip()
