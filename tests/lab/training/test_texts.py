"""Texts to train on, the words they are drawn from, and the places of spoken words in them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

from lab.training.texts import (
    MAX_LETTERS,
    Corpus,
    DictionaryMissingError,
    align_words,
    draw_text,
    read_corpus,
)
from lab.training.texts.corpus import made_up_word, plain_text
from lab.training.texts.dictionary import make_dictionary, read_dictionary
from lab.training.texts.sentences import SentenceMaker, capitalise, spell_out

NUM_TEXTS = 1500


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Return the book and PocketSphinx's words; skip without PocketSphinx."""
    pytest.importorskip("pocketsphinx")
    return read_corpus()


@pytest.fixture(scope="module")
def texts(corpus: Corpus) -> list[str]:
    """Return drawn texts."""
    rng = random.Random(7)
    return [draw_text(corpus, rng) for _ in range(NUM_TEXTS)]


def test_texts_are_plain_without_digits_and_few_are_the_same(texts: list[str]) -> None:
    assert all(re.fullmatch(r"[ -/:-~]*[A-Za-z][ -/:-~]*", text) for text in texts)
    assert all(text == text.strip() for text in texts)
    assert not [text for text in texts if "  " in text or ".." in text.replace("...", "")]
    assert len(set(texts)) > 0.95 * NUM_TEXTS


def test_lengths_are_spread_from_a_word_to_the_most_letters(texts: list[str]) -> None:
    lengths = [len(text) for text in texts]
    assert max(lengths) <= MAX_LETTERS
    assert 48 < sum(lengths) / NUM_TEXTS < 62
    assert 0.09 < sum(length >= 100 for length in lengths) / NUM_TEXTS < 0.15
    assert sum(length >= 170 for length in lengths) > 20
    assert sum(" " not in text for text in texts) > 20


def test_every_kind_of_text_is_drawn(texts: list[str]) -> None:
    for pattern in (
        r'"[A-Z].*[,?!]" ', r"\?", r"; ", r"\w, \w+ and \w", r"'s\b", r"n't\b", r"\([a-z]",
        r"^[a-z ]+$", r"^[A-Z ]+[.!]?$", r"\b(Mr|Mister|Doctor|Captain)\b", r"dollars|pounds",
        r"nineteen [a-z]+-[a-z]+", r"-(first|second|third|fourth)", r"Time Traveller",
    ):  # fmt: skip
        assert sum(bool(re.search(pattern, text)) for text in texts) > 1, pattern


def test_frequent_words_are_met_often_and_many_words_once(texts: list[str]) -> None:
    words = [word for text in texts for word in re.findall(r"[a-z']+", text.lower())]
    assert len(words) / 12 < len(set(words)) < len(words) / 2
    assert words.count("the") > 0.03 * len(words)


def test_the_same_seed_draws_the_same_text(corpus: Corpus) -> None:
    first, again = random.Random("a 1"), random.Random("a 1")
    assert [draw_text(corpus, first) for _ in range(40)] == [
        draw_text(corpus, again) for _ in range(40)
    ]


def test_the_whole_book_is_drawn_from(corpus: Corpus) -> None:
    assert (
        "The Time Traveller (for so it will be convenient to speak of him) was expounding a "
        "recondite matter to us." in corpus.sentences
    )
    assert any("strange white flowers" in piece for piece in corpus.pieces)  # of the last page
    assert len(corpus.pieces[0]) < 5
    assert len(corpus.pieces[-1]) in range(MAX_LETTERS - 5, MAX_LETTERS + 1)


def test_made_up_words_are_mostly_no_words(corpus: Corpus) -> None:
    rng = random.Random(2)
    known = {word.lower() for word in corpus.running_words}
    words = [made_up_word(corpus, rng) for _ in range(200)]
    assert all(2 <= len(word) <= 11 and word.isalpha() for word in words)
    assert sum(word in known for word in words) < 100


def test_words_of_the_dictionary_are_clean(corpus: Corpus) -> None:
    dictionary = corpus.dictionary
    every = {*dictionary.words, *dictionary.rare}
    assert len(every) > 100_000
    assert all(re.fullmatch(r"[a-z']{1,14}", word) for word in every)
    assert {"the", "house", "it's", "i", "a"} <= set(dictionary.words)
    assert dictionary.words.index("the") < dictionary.words.index("house")
    assert {"the", "and", "of"} <= dictionary.function_words


def test_missing_dictionary_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pocketsphinx", None)
    with pytest.raises(DictionaryMissingError, match=r"tts install asr"):
        read_dictionary()


def test_sentences_follow_the_language_model(corpus: Corpus) -> None:
    """The model here knows one sentence only, so that nothing else can be drawn."""
    order = ["<s>", "run", "home", "and", "sleep", "</s>"]

    def probability(words: list[str]) -> float:
        if len(words) == 1:
            return 0.25 if words[0] in order else 0.0
        return 1.0 if order.index(words[0]) == order.index(words[1]) + 1 else 0.0

    dictionary = make_dictionary(["and", "home", "run", "sleep", "unheard"], probability)
    assert dictionary.draw_running_words(random.Random(0)) == ["run", "home", "and", "sleep"]
    assert dictionary.rare == ("unheard",)


def test_numbers_of_sentences_are_in_words(corpus: Corpus) -> None:
    maker = SentenceMaker(corpus, random.Random(3))
    numbered = [maker.make("numbered") for _ in range(500)]
    assert not [text for text in numbered if re.search(r"[0-9$%:]\d|\d", text)]
    assert spell_out("on 3 May 1942") == "on the third of May nineteen forty-two"


def test_marks_outside_ascii_are_replaced() -> None:
    marked = "\u201cWhere\u2019s\u2060\u2014?\u201d said I\u2014caf\u00e9\u00a0\u2026 no"
    assert plain_text(marked) == "Where's? said I, cafe... no"
    assert capitalise('so. and "then?" he said. "why') == 'So. And "then?" he said. "Why'


@pytest.mark.parametrize(
    ("text", "words", "spoken"),
    [
        ("It's late.", ["it", "'s", "late"], ["It", "'s", "late"]),
        ("Don't go", ["dont", "go"], ["Don't", "go"]),
        ('"Twenty-three," he said', ["twenty", "three", "he", "said"],
         ["Twenty", "three", "he", "said"]),
        ("a well-to-do man", ["_a", "well-to-do", "man"], ["a", "well-to-do", "man"]),
        ("the BBC", ["the", "b", "b", "c"], ["the", "B", "B", "C"]),
        ("Mr. O'Neil read", ["mister", "oneil", "red"], ["Mr", "O'Neil", "read"]),
        ("St. Mark", ["saint", "mark"], ["St", "Mark"]),
        ("the dogs' tails...", ["the", "dogs", "tails"], ["the", "dogs", "tails"]),
        ("", [], []),
    ],
)  # fmt: skip
def test_words_are_found_in_the_text(
    text: str, words: Sequence[str], spoken: Sequence[str]
) -> None:
    places = align_words(text, words)
    assert places is not None
    assert [text[first : first + count] for first, count in places] == spoken


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one two", ["one"]),
        ("one", ["one", "two"]),
        ("one two", ["two", "one"]),
        ("me.", ["maine"]),
        ("one", [""]),
        ("", ["one"]),
    ],
)
def test_words_of_another_text_are_not_found(text: str, words: Sequence[str]) -> None:
    assert align_words(text, words) is None
