"""Hold the sentence cutter to texts that sentencex alone cuts too early."""

# ruff: noqa: RUF001  # look-alikes of ASCII are part of the data

from __future__ import annotations

import time

import pytest

from synth.text.sentences import split_sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ['He said "Stop it! Now." ', "Then he left. ", "“Who? Me?” she asked. ", "Yes."]),
        ("ja", ["彼は「行くよ。待って！」と言った。", "そして去った。", "「はい。」", "次。"]),
        ("en", ["Dr. Smith met Mr. J. R. R. Tolkien at 3.14 p.m. in the U.S. ", "He paid $3.50."]),
        ("en", ["Wait... what? ", "Well… maybe. ", "And so... he went."]),
        ("en", ["Visit https://example.com/a.b?c=d. ", "Then www.x.org is next."]),
        ("en", ["George W. Bush. ", "See vol. iv. for more. ", "No. 5 is good."]),
        ("en", ["It costs 1.5 million. ", "2. Second item."]),
        ("en", ["!!! Really?! ", "Yes!!! ", "(He did. It was fine.) Done."]),
        ("de", ["Das ist z. B. gut. ", "Am 3. Mai kam er. ", "»Ja. Nein.« ", "Gut."]),
        ("fr", ["M. de Tréville vint. ", "Il dit."]),
        ("fr", ["Mme. Dupont arriva. ", "Bien."]),
        ("zh", ["他说：“你好。再见。”", "然后走了。"]),
        ("hi", ["नमस्ते। ", "आप कैसे हैं। ", "ठीक।"]),
        ("ar", ["مرحبا؟ ", "نعم. ", "كيف حالك؟"]),
        ("en", ["hello there. ", "how are you. ", "fine."]),
        ("en", ['"Quote never closed. ', "Another one. ", "Third."]),
        ("xx-Unknown", ["One here. ", "Two here."]),
        ("", ["One here. ", "Two here."]),
    ],
)
def test_text_is_cut_between_its_sentences(language: str, sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), language) == sentences


def test_sentences_are_the_same_however_long_the_paragraph_is() -> None:
    sentences = [f"Sentence {n}, of Mr. Smith and “his. Friends,” is here. " for n in range(300)]

    assert split_sentences("".join(sentences)) == sentences


def test_sentence_of_many_thousand_characters_is_one() -> None:
    text = "word " * 3000 + "end. "

    assert split_sentences(text + "Next one.") == [text, "Next one."]


@pytest.mark.parametrize("text", ["", " ", "...", "」」」", ". . .", "a"])
def test_join_of_the_sentences_is_the_text_again(text: str) -> None:
    assert "".join(split_sentences(text)) == text


@pytest.mark.parametrize("unit", ["vol. Vol. ", "a. ", '" ', "... ", "(A. ", "。", "」。"])
def test_time_grows_no_faster_than_the_text(unit: str) -> None:
    started = time.process_time()

    split_sentences(unit * 100_000 + "a")

    assert time.process_time() - started < 5
