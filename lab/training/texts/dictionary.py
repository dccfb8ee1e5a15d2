"""Read English words and how often they occur from the model that PocketSphinx's wheel brings.

The dictionary has 126,000 words, many of them names; its language model knows 72,000 of them and
which follow which. Both have a BSD licence.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module, resources
from itertools import accumulate
from typing import Any

MAX_WORD_LETTERS = 14
_WORD = re.compile(r"[a-z][a-z']*[a-z]|[ai]")
_MODEL = "model/en-us"
_NUM_FUNCTION_WORDS = 160  # the most frequent words
_COMMON_SHARE = 0.65  # of the words that are drawn; the others are any word, rarely a known one
_EVENNESS = 0.6  # power of a frequency; below 1 so that rare words are met as well
_END, _START = "</s>", "<s>"
_NUM_CANDIDATES = 150
_FEWEST_WORDS, _MOST_WORDS = 4, 24

ADVERB, PAST, DOING, PLURAL, ADJECTIVE, PLAIN = (
    "adverb", "past", "doing", "plural", "adjective", "plain",
)  # fmt: skip
_ADJECTIVE_ENDINGS = ("ful", "ous", "ive", "able", "ible", "ic", "al", "less", "ish", "ant", "ent")


class DictionaryMissingError(Exception):
    """PocketSphinx is not installed; the text says how to get it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Hold words of one kind: the common ones with summed weights, and all of them."""

    common: tuple[str, ...]
    weights: tuple[float, ...]
    every: tuple[str, ...]

    def draw(self, rng: random.Random) -> str:
        """Return a common word by its frequency, or any word."""
        if self.common and rng.random() < _COMMON_SHARE:
            return rng.choices(self.common, cum_weights=self.weights)[0]
        return rng.choice(self.every)


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """Hold the words in groups by their endings, and what follows what.

    `probability` takes a word and those before it, the last one first, two at most.
    """

    groups: dict[str, Group]
    words: tuple[str, ...]  # that occur in running text, the most frequent first
    weights: tuple[float, ...]  # their probabilities, summed
    rare: tuple[str, ...]  # words without a frequency, most of them names
    function_words: frozenset[str]
    probability: Callable[[list[str]], float]

    def draw_running_words(self, rng: random.Random) -> list[str]:
        """Return the words of one sentence, of 4 to 24, by the frequency of three in a row."""
        words: list[str] = []
        while len(words) < _MOST_WORDS:
            before = [*reversed(words), _START][:2]
            if len(words) >= _FEWEST_WORDS and rng.random() < self.probability([_END, *before]):
                break
            drawn = rng.choices(self.words, cum_weights=self.weights, k=_NUM_CANDIDATES)
            # They were drawn by their frequency already, so only the rest of the odds counts.
            odds = [self.probability([word, *before]) / self.probability([word]) for word in drawn]
            words.append(rng.choices(drawn, odds)[0])
        return words


def read_dictionary() -> Dictionary:
    """Read the words of PocketSphinx's model.

    Raises:
        DictionaryMissingError: PocketSphinx is not installed.
    """
    try:
        sphinx = import_module("pocketsphinx")
    except ImportError as error:
        raise DictionaryMissingError(
            "PocketSphinx, whose words are trained on, is not installed: ./tts install asr."
        ) from error
    folder = resources.files("pocketsphinx") / _MODEL
    listed = (folder / "cmudict-en-us.dict").read_text("utf-8").splitlines()
    words = sorted({word for line in listed if (word := _clean_word(line.split(" ")[0]))})
    with resources.as_file(folder / "en-us.lm.bin") as path:
        probability = _open_language_model(sphinx, str(path))
    return make_dictionary(words, probability)


def make_dictionary(words: Sequence[str], probability: Callable[[list[str]], float]) -> Dictionary:
    """Sort words into groups; `probability` is 0 for a word without a frequency."""
    frequencies = {word: probability([word]) for word in words}
    known = sorted((word for word in words if frequencies[word]), key=lambda w: -frequencies[w])
    function_words = frozenset(known[:_NUM_FUNCTION_WORDS])
    members: defaultdict[str, list[str]] = defaultdict(list)
    every = frozenset(words)
    for word in words:
        if word not in function_words and "'" not in word and len(word) > 2:
            members[kind_of(word, every)].append(word)
    return Dictionary(
        groups={kind: _make_group(group, frequencies) for kind, group in members.items()},
        words=tuple(known),
        weights=tuple(accumulate(frequencies[word] for word in known)),
        rare=tuple(word for word in words if not frequencies[word]),
        function_words=function_words,
        probability=probability,
    )


def kind_of(word: str, words: frozenset[str] = frozenset()) -> str:
    """Return a word's group by its ending; with `words`, only known words have a plural."""
    if len(word) > 4:
        for ending, kind in (("ly", ADVERB), ("ed", PAST), ("ing", DOING)):
            if word.endswith(ending):
                return kind
        if word.endswith(_ADJECTIVE_ENDINGS):
            return ADJECTIVE
    is_plural = word.endswith("s") and not word.endswith("ss") and len(word) > 3
    return PLURAL if is_plural and (not words or word[:-1] in words) else PLAIN


def _make_group(words: list[str], frequencies: dict[str, float]) -> Group:
    common = [word for word in words if frequencies[word]]
    weights = accumulate(frequencies[word] ** _EVENNESS for word in common)
    return Group(tuple(common), tuple(weights), tuple(words))


def _clean_word(entry: str) -> str:
    """Return a word of the dictionary, or nothing for a second form and for odd spellings."""
    return entry if _WORD.fullmatch(entry) and len(entry) <= MAX_WORD_LETTERS else ""


def _open_language_model(sphinx: Any, path: str) -> Callable[[list[str]], float]:
    scale = sphinx.LogMath()
    model = sphinx.NGramModel(sphinx.Config(), scale, path)
    return lambda words: float(scale.exp(model.prob(words)))
