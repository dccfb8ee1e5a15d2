"""Read what texts are drawn from: a book in the public domain, and a dictionary.

Made-up words follow the book's spelling three letters at a time; they teach how letters sound where
no word can be remembered.
"""

from __future__ import annotations

import html
import random
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.training.texts.dictionary import Dictionary, read_dictionary

BOOK = Path(__file__).parents[3] / "tests/data/books/the-time-machine_standardebooks.epub"
MAX_LETTERS = 200
_CHAPTER = re.compile(r"chapter-(\d+)\.xhtml$")
_NOTE_MARK = re.compile(r"<a [^>]*noteref[^>]*>.*?</a>")
_PARAGRAPH = re.compile(r"<p[^>]*>(.*?)</p>", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*")
_REPLACED = {
    "\u2019": "'", "\u2018": "", "\u201c": "", "\u201d": "", "\u2014": ", ", "\u2013": "-",
    "\u2060": "", "\u00a0": " ", "\u2026": "...", "\u00e9": "e", "\u200a": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Hold what texts are drawn from."""

    pieces: tuple[str, ...]  # of the book, at most MAX_LETTERS long, the shortest first
    sentences: tuple[str, ...]  # of the book, whole
    running_words: tuple[str, ...]  # of the book, as often as they occur
    spellings: dict[str, tuple[str, ...]]  # two letters -> the letters seen after them
    dictionary: Dictionary


def read_corpus(book: Path = BOOK) -> Corpus:
    """Read an EPUB whose chapters are files named chapter-N.xhtml, and PocketSphinx's words.

    Raises:
        DictionaryMissingError: PocketSphinx is not installed.
    """
    paragraphs = list(_paragraphs(book))
    words = [word for sentences in paragraphs for text in sentences for word in _WORD.findall(text)]
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for word in sorted({word.lower() for word in words if word.isalpha()}):
        for index in range(len(word) + 1):
            spellings[f"^^{word}"[index : index + 2]].append(f"{word}$"[index])
    return Corpus(
        pieces=tuple(sorted(_pieces(paragraphs), key=lambda piece: (len(piece), piece))),
        sentences=tuple(
            dict.fromkeys(
                text for sentences in paragraphs for text in sentences if len(text) <= MAX_LETTERS
            )
        ),
        running_words=tuple(words),
        spellings={key: tuple(value) for key, value in spellings.items()},
        dictionary=read_dictionary(),
    )


def made_up_word(corpus: Corpus, rng: random.Random) -> str:
    """Return a word of 2 to 11 letters that is spelled like the book's."""
    while True:
        word = "^^"
        while not word.endswith("$") and len(word) < 15:
            word += rng.choice(corpus.spellings[word[-2:]])
        word = word[2:].rstrip("$")
        if 2 <= len(word) <= 11:
            return word


def plain_text(text: str) -> str:
    """Return a text in ASCII: without curly marks, and a comma for a long dash."""
    for old, new in _REPLACED.items():
        text = text.replace(old, new)
    text = text.encode("ascii", "ignore").decode()
    text = re.sub(r"\s+", " ", text).replace(" ,", ",").replace(" ...", "...")
    text = re.sub(r",\s*([.?!])", r"\1", text)
    return re.sub(r"([,;:.?!]),", r"\1", text).strip()


def _paragraphs(book: Path) -> Iterator[list[str]]:
    """Yield the sentences of every paragraph of the chapters."""
    with zipfile.ZipFile(book) as archive:
        for name in sorted(archive.namelist()):
            if _CHAPTER.search(name) is None:
                continue
            for paragraph in _PARAGRAPH.findall(archive.read(name).decode("utf-8")):
                paragraph = re.sub(r"<[^>]+>", "", _NOTE_MARK.sub("", paragraph))
                text = plain_text(html.unescape(paragraph))
                sentences = [part.strip() for part in re.split(r"(?<=[.!?])\s+", text)]
                yield [part for part in sentences if _WORD.search(part)]


def _pieces(paragraphs: list[list[str]]) -> set[str]:
    """Return sentences, clauses, sentences in a row, and windows of 1 to 30 words."""
    rng, pieces = random.Random(1), set()
    for sentences in paragraphs:
        candidates = [
            " ".join(sentences[first : first + count])
            for count in range(1, 6)
            for first in range(len(sentences) - count + 1)
        ]
        for sentence in sentences:
            candidates += re.split(r"(?<=[,;:])\s+", sentence)
            words = sentence.split()
            for start in range(0, len(words), 2):
                candidates.append(" ".join(words[start : start + rng.randint(1, 10)]))
                candidates.append(" ".join(words[start : start + rng.randint(11, 30)]))
        pieces |= {
            piece for part in candidates if 2 <= len(piece := part.strip(" ;:-,")) <= MAX_LETTERS
        }
    return pieces
