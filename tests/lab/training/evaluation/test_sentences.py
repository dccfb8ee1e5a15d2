"""The evaluation's sentences are unseen, and the others differ in one word."""

from __future__ import annotations

from lab.training.evaluation.sentences import evaluation_sentences, one_word_changed
from lab.training.texts import read_corpus


def test_no_sentence_is_a_piece_that_is_trained_on() -> None:
    assert not set(evaluation_sentences()) & set(read_corpus().pieces)


def test_there_are_forty_and_always_the_same() -> None:
    assert len(set(evaluation_sentences())) == 40
    assert evaluation_sentences() == evaluation_sentences()


def test_candidates_differ_from_the_first_in_exactly_one_word_of_the_same_length() -> None:
    sentences = evaluation_sentences()

    for index, sentence in enumerate(sentences):
        first, *others = one_word_changed(sentence, sentences, seed=index)
        assert first == sentence
        assert len(set(others)) == 9
        for other in others:
            pairs = list(zip(sentence.split(), other.split(), strict=True))
            changed = [(old, new) for old, new in pairs if old != new]
            assert len(changed) == 1
            assert len(changed[0][0]) == len(changed[0][1])
