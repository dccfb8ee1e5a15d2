"""What is said is fixed, not trained on, and what differs from it differs in one place."""

from __future__ import annotations

import re

from lab.training.evaluation.numbers import number_sentences, spell_out
from lab.training.evaluation.texts import (
    CLIP_TEXT,
    LONG_LETTERS,
    PLAIN_SENTENCES,
    book_sentences,
    one_word_changed,
    other_endings,
)
from lab.training.texts import read_corpus


def test_there_are_a_hundred_clean_sentences_of_which_two_in_five_are_long() -> None:
    sentences = book_sentences()
    assert len(set(sentences)) == 100
    assert sum(len(sentence) >= LONG_LETTERS for sentence in sentences) == 40
    for sentence in sentences:
        assert 20 <= len(sentence) <= 200
        assert re.fullmatch(r"[A-Z][A-Za-z',;:.?! -]*[.?!]", sentence), sentence
        assert not re.search(r"\s[,;.]|[,;:.?!][,;:.A-Za-z]|  |[a-z]'?[A-Z]", sentence), sentence


def test_none_of_them_is_trained_on() -> None:
    corpus = read_corpus()
    said = {*book_sentences(), *PLAIN_SENTENCES, CLIP_TEXT}
    assert not said & set(corpus.pieces)


def test_twelve_plain_sentences_have_121_words() -> None:
    assert len(PLAIN_SENTENCES) == 12
    assert sum(len(sentence.split()) for sentence in PLAIN_SENTENCES) == 121


def test_candidates_differ_from_the_first_in_exactly_one_word_of_the_same_length() -> None:
    sentences = book_sentences()
    for index, sentence in enumerate(sentences):
        first, *others = one_word_changed(sentence, sentences, seed=index)
        assert first == sentence
        assert len(set(others)) == 9
        for other in others:
            pairs = list(zip(sentence.split(), other.split(), strict=True))
            changed = [(old, new) for old, new in pairs if old != new]
            assert len(changed) == 1
            assert len(changed[0][0]) == len(changed[0][1])


def test_other_endings_lack_words_or_have_them_twice() -> None:
    assert other_endings("We all went home again today.") == [
        "We all went home again today.",
        "We all went home",
        "We all",
        "We all went home again today. again today.",
    ]


def test_fifty_sentences_are_spelled_out_and_differ_in_one_number() -> None:
    found = number_sentences()
    assert len({sentence.written for sentence in found}) == 50
    for sentence in found:
        assert re.search(r"\d", sentence.written)
        assert sentence.alternatives[0] == spell_out(sentence.written)
        assert len(set(sentence.alternatives)) == 10
        assert not re.search(r"[\d$%]", " ".join(sentence.alternatives))


def test_numbers_are_said_as_the_service_says_them() -> None:
    assert spell_out("On 3 May 1942 they paid $23.50 at 7:45.") == (
        "On the third of May nineteen forty-two they paid twenty-three dollars and fifty cents "
        "at seven forty-five."
    )
    assert spell_out("Nothing to change.") == "Nothing to change."
