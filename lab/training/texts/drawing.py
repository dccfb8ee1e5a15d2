"""Draw one text to train on, of any kind and any length that is trained."""

from __future__ import annotations

import random
from collections.abc import Callable

from lab.training.texts.corpus import MAX_LETTERS, Corpus, made_up_word
from lab.training.texts.sentences import SentenceMaker

_SHARES = {
    "book": 0.24, "varied": 0.14, "running": 0.12, "grammar": 0.22, "numbers": 0.10,
    "names": 0.05, "loose": 0.13,
}  # fmt: skip
_LONG_SHARE, _SHORT_SHARE = 0.125, 0.08
_LONG_FROM = 102
_TRIES = 8
_CAPITALS_SHARE, _UNMARKED_SHARE = 0.015, 0.06


def draw_text(corpus: Corpus, rng: random.Random) -> str:
    """Return one text of 1 to MAX_LETTERS letters of ASCII, without digits."""
    kind = rng.choices(list(_SHARES), list(_SHARES.values()))[0]
    letters = _draw_length(rng)
    if kind == "book":
        text = _draw_piece(corpus, rng, letters)
    elif kind == "loose":
        text = _loose_words(corpus, rng, letters)
    else:
        maker = SentenceMaker(corpus, rng)
        draw = {
            "varied": maker.vary_sentence,
            "running": maker.follow_words,
            "grammar": lambda: maker.make("sentence"),
            "numbers": lambda: maker.make("numbered"),
            "names": lambda: maker.make("name") + rng.choice((",", ".", ";", "?", "")),
        }[kind]
        text = _join_sentences(draw, rng, letters)
    chance = rng.random()
    if chance < _CAPITALS_SHARE:
        return text.upper()
    if chance < _CAPITALS_SHARE + _UNMARKED_SHARE:
        return text.lower().rstrip(".,;?!")
    return text


def _draw_length(rng: random.Random) -> int:
    """Return about how many letters a text shall have."""
    chance = rng.random()
    if chance < _LONG_SHARE:
        return rng.randint(_LONG_FROM, MAX_LETTERS)
    if chance < _LONG_SHARE + _SHORT_SHARE:
        return rng.randint(2, 16)
    return round(rng.triangular(12, 98, 30))


def _draw_piece(corpus: Corpus, rng: random.Random, letters: int) -> str:
    """Return a piece of the book that has about as many letters."""
    places = [
        _first_as_long(corpus.pieces, length) for length in (0.9 * letters, 1.1 * letters + 1)
    ]
    first, end = min(places[0], len(corpus.pieces) - 1), places[1]
    return corpus.pieces[rng.randrange(first, max(end, first + 1))]


def _loose_words(corpus: Corpus, rng: random.Random, letters: int) -> str:
    """Return words that have nothing to do with each other, some of them made up."""
    dictionary = corpus.dictionary
    groups = list(dictionary.groups.values())
    sources: list[Callable[[], str]] = [
        lambda: rng.choice(corpus.running_words),
        lambda: rng.choices(dictionary.words, cum_weights=dictionary.weights)[0],
        lambda: rng.choice(dictionary.words),
        lambda: rng.choice(groups).draw(rng),
        lambda: rng.choice(dictionary.rare),
        lambda: made_up_word(corpus, rng),
    ]
    alike = rng.choice((*sources, None))
    comma = rng.choice((0.0, 0.0, 0.25))
    text = ""
    while len(text) < letters:
        word = (alike or rng.choice(sources))()
        mark = "," if text and rng.random() < comma else ""
        if text and len(text) + len(word) + 2 > min(letters + 6, MAX_LETTERS - 1):
            break
        text = f"{text}{mark} {word}" if text else word
    if rng.random() < 0.6:
        text = text[0].upper() + text[1:] + rng.choice("....,?!;")
    return text


def _join_sentences(draw: Callable[[], str], rng: random.Random, letters: int) -> str:
    """Return sentences in a row; where none is short enough, the beginning of one."""
    text = ""
    most = min(MAX_LETTERS, round(1.15 * letters))
    for _ in range(_TRIES):
        sentence = draw()
        if len(text) + len(sentence) + 1 <= most:
            text = f"{text} {sentence}".strip()
        if len(text) >= 0.75 * letters:
            return text
    return text or _cut(draw(), most)


def _cut(text: str, letters: int) -> str:
    """Return the first words of a text, one at least, without a mark after the last."""
    words = text.split()
    while len(words) > 1 and len(" ".join(words)) > letters:
        words.pop()
    return " ".join(words)[:MAX_LETTERS].strip(' ,;:-("')


def _first_as_long(pieces: tuple[str, ...], letters: float) -> int:
    """Return the index of the first of the pieces, the shortest first, that is as long."""
    low, high = 0, len(pieces)
    while low < high:
        middle = (low + high) // 2
        if len(pieces[middle]) < letters:
            low = middle + 1
        else:
            high = middle
    return low
