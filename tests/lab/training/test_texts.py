"""Texts are short, varied and never a sentence of the evaluation."""

from __future__ import annotations

import random

import pytest

from lab.training.texts import (
    MAX_LETTERS,
    Corpus,
    draw_text,
    held_out_sentences,
    made_up_word,
    read_corpus,
)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Return the book."""
    return read_corpus()


def test_drawn_texts_are_plain_and_short(corpus: Corpus) -> None:
    rng = random.Random(0)
    texts = [draw_text(corpus, rng) for _ in range(500)]

    assert max(map(len, texts)) <= MAX_LETTERS
    assert all(text.isascii() and text.strip() == text and text for text in texts)
    assert len(set(texts)) > 400


def test_no_drawn_text_is_a_held_out_sentence(corpus: Corpus) -> None:
    rng = random.Random(1)
    assert not {draw_text(corpus, rng) for _ in range(2000)} & set(corpus.held_out)


def test_made_up_words_are_mostly_no_words_of_the_book(corpus: Corpus) -> None:
    rng = random.Random(2)
    known = {word.lower() for word in corpus.vocabulary}
    words = [made_up_word(corpus, rng) for _ in range(200)]

    assert all(2 <= len(word) <= 11 and word.isalpha() for word in words)
    assert sum(word in known for word in words) < 100


def test_asking_for_more_sentences_than_there_are_says_so(corpus: Corpus) -> None:
    with pytest.raises(ValueError, match="held-out sentences, not 5000"):
        held_out_sentences(corpus, 5000)
