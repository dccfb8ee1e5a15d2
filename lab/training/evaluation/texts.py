"""Choose what is said: plain sentences, sentences of a book, and others that differ in one word."""

from __future__ import annotations

import random
import re
from functools import lru_cache
from pathlib import Path

BOOK = Path(__file__).parents[3] / "tests/data/books/alice-in-wonderland-chapters-1-2.txt"
CLIP_TEXT = "He left the old house early in the morning and walked slowly down to the river."
PLAIN_SENTENCES = (
    "Please close the door when you leave the room.",
    "My brother bought a new car last week.",
    "We will meet you at the station after lunch on Monday.",
    "She put the letter on the table and went to bed.",
    "The children are playing in the garden behind the house.",
    "It was raining all day, so we stayed at home.",
    "Can you tell me the way to the nearest hospital?",
    "He has worked for the same company for many years.",
    "The water in the lake is too cold for swimming.",
    "They said that the train would be late this evening.",
    "I would like a cup of coffee and some bread.",
    "There is nothing better than a good book on a quiet night.",
)
NUM_SENTENCES, NUM_CANDIDATES = 100, 10
FEWEST_LETTERS, MOST_LETTERS = 20, 200
LONG_LETTERS = 100  # from here on a sentence is a long one


@lru_cache(maxsize=1)
def book_sentences() -> tuple[str, ...]:
    """Return a hundred sentences of two chapters, always the same; of each five two are long."""
    found = dict.fromkeys(
        sentence
        for sentence in _sentences(BOOK.read_text(encoding="ascii"))
        if FEWEST_LETTERS <= len(sentence) <= MOST_LETTERS and sentence[0].isupper()
    )
    ordered = list(found)
    random.Random(0).shuffle(ordered)
    long = iter([sentence for sentence in ordered if len(sentence) >= LONG_LETTERS])
    short = iter([sentence for sentence in ordered if len(sentence) < LONG_LETTERS])
    return tuple(next(long if index % 5 in (0, 3) else short) for index in range(NUM_SENTENCES))


def _sentences(book: str) -> list[str]:
    paragraphs = re.split(r"\n\s*\n", book)
    return [
        re.sub(r"(?<![.!?])$", ".", sentence.strip(" ,;:-"))
        for paragraph in paragraphs
        if "CHAPTER" not in paragraph and "Lewis Carroll" not in paragraph
        for sentence in re.split(r"(?<=[.!?;])\s+", _plain(paragraph))
    ]


def _plain(paragraph: str) -> str:
    """Return a paragraph in one line, without marks of speech, brackets and capitals for stress."""
    text = re.sub(r"-\n\s*", "-", paragraph)
    text = re.sub(r"\s+", " ", text).replace("`", "")
    text = re.sub(r"(?<![A-Za-z])'|'(?![A-Za-z])", "", text)
    text = re.sub(r" ?--+ ?| ?\(|\)(?=[^.,;:!?])", ", ", text)
    text = re.sub(r"[)*_\"]", "", text)
    text = re.sub(r"\b[A-Z][A-Z]+(?:'[A-Z])?\b", lambda word: word[0].lower(), text)
    text = re.sub(r"(?:, )+", ", ", re.sub(r"\s+", " ", text))
    return re.sub(r",+(?=[.,;:!?])|(?<=[;:,.!?]),", "", text).strip()


def one_word_changed(sentence: str, sentences: tuple[str, ...], seed: int) -> list[str]:
    """Return the sentence and then nine that differ from it in one word of as many letters."""
    rng = random.Random(seed)
    vocabulary = sorted(
        {word for text in sentences for word in re.findall(r"\b[a-z]{4,}\b(?!')", text)}
    )
    words = re.findall(r"\b[A-Za-z]{4,}\b(?!')", sentence)
    found = [sentence]
    while len(found) < NUM_CANDIDATES:
        word = rng.choice(words)
        same_length = [
            other for other in vocabulary if len(other) == len(word) and other != word.lower()
        ]
        if not same_length:
            words.remove(word)  # a word so long that no other is
            continue
        changed = re.sub(rf"\b{word}\b", rng.choice(same_length), sentence, count=1)
        if changed not in found:
            found.append(changed)
    return found


def other_endings(sentence: str) -> list[str]:
    """Return the sentence, then it without its last two and four words, and with two said twice."""
    words = sentence.split()
    return [
        sentence,
        " ".join(words[:-2]),
        " ".join(words[:-4]),
        " ".join([*words, *words[-2:]]),
    ]
