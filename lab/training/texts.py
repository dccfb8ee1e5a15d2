"""Draw texts to train on: pieces of a public-domain book, random words, and made-up words.

Made-up words follow the book's spelling three letters at a time; they teach how letters sound where
no word can be remembered. The evaluation's sentences come from the last chapters, whose sentences
are never drawn; their words may be, alone.
"""

from __future__ import annotations

import html
import random
import re
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

BOOK = Path(__file__).parents[2] / "tests/data/books/the-time-machine_standardebooks.epub"
MAX_LETTERS = 62
_HELD_OUT_CHAPTERS = 4  # the last ones
_PARAGRAPH = re.compile(r"<p[^>]*>(.*?)</p>", re.DOTALL)
_CHAPTER = re.compile(r"chapter-(\d+)\.xhtml$")
_REPLACED = {
    "\u2019": "'", "\u2018": "", "\u201c": "", "\u201d": "", "\u2014": ", ", "\u2013": "-",
    "\u2060": "", "\u00a0": " ", "\u2026": ".", "\u00e9": "e", "\u200a": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Corpus:
    """Hold what texts are drawn from, and the sentences kept for the evaluation."""

    pieces: tuple[str, ...]  # of the book, at most MAX_LETTERS long
    running_words: tuple[str, ...]  # as often as they occur
    vocabulary: tuple[str, ...]  # each word once, of the whole book
    spellings: dict[str, tuple[str, ...]]  # two letters -> the letters seen after them
    held_out: tuple[str, ...]  # sentences of 28 to 58 letters that are not trained on


def read_corpus(book: Path = BOOK) -> Corpus:
    """Read an EPUB whose chapters are files named chapter-N.xhtml."""
    sentences = _sentences(book)
    last = max(chapter for chapter, _ in sentences) - _HELD_OUT_CHAPTERS
    trained = [sentence for chapter, sentence in sentences if chapter <= last]
    held_out = {sentence for chapter, sentence in sentences if chapter > last} - set(trained)
    words = [word for sentence in trained for word in re.findall(r"[A-Za-z']+", sentence)]
    every = {word for _, sentence in sentences for word in re.findall(r"[A-Za-z']+", sentence)}
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for word in sorted({word.lower() for word in every if word.isalpha()}):
        for index in range(len(word) + 1):
            before = f"^^{word}"[index : index + 2]
            spellings[before].append(f"{word}$"[index])
    return Corpus(
        pieces=tuple(sorted(_pieces(trained))),
        running_words=tuple(words),
        vocabulary=tuple(sorted(every)),
        spellings={key: tuple(value) for key, value in spellings.items()},
        held_out=tuple(
            sorted(
                sentence
                for sentence in held_out
                if 28 <= len(sentence) <= 58 and sentence[0].isupper() and sentence[-1] in ".!?"
            )
        ),
    )


def draw_text(corpus: Corpus, rng: random.Random) -> str:
    """Return one text of at most MAX_LETTERS: 40 % pieces of the book, the rest loose words."""
    if rng.random() < 0.4:
        return rng.choice(corpus.pieces)
    source = rng.choice((corpus.running_words, corpus.vocabulary, corpus.vocabulary, None))
    words = []
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 5, 6))):
        words.append(rng.choice(source) if source else made_up_word(corpus, rng))
    text = " ".join(words)[:MAX_LETTERS].strip()
    if rng.random() < 0.6:
        text = text[0].upper() + text[1:]
        text = text[: MAX_LETTERS - 1] + rng.choice("....,?!;")
    return text


def made_up_word(corpus: Corpus, rng: random.Random) -> str:
    """Return a word of 2 to 11 letters that is spelled like the book's."""
    while True:
        word = "^^"
        while not word.endswith("$") and len(word) < 15:
            word += rng.choice(corpus.spellings[word[-2:]])
        word = word[2:].rstrip("$")
        if 2 <= len(word) <= 11:
            return word


def held_out_sentences(corpus: Corpus, count: int, seed: int = 0) -> list[str]:
    """Return `count` of the sentences that are never trained on; the same for the same seed."""
    chosen = list(corpus.held_out)
    random.Random(seed).shuffle(chosen)
    if len(chosen) < count:
        raise ValueError(f"the book has {len(chosen)} held-out sentences, not {count}")
    return sorted(chosen[:count])


def common_words(sentences: list[str]) -> Counter[str]:
    """Count the words of four letters and more."""
    return Counter(word for text in sentences for word in re.findall(r"[A-Za-z]{4,}", text))


def _sentences(book: Path) -> list[tuple[int, str]]:
    found = []
    with zipfile.ZipFile(book) as archive:
        for name in sorted(archive.namelist()):
            if (chapter := _CHAPTER.search(name)) is None:
                continue
            for paragraph in _PARAGRAPH.findall(archive.read(name).decode("utf-8")):
                text = _plain(html.unescape(re.sub(r"<[^>]+>", "", paragraph)))
                for sentence in re.split(r"(?<=[.!?;:])\s+", text):
                    stripped = sentence.strip(" ;:-")
                    if len(stripped) > 3:
                        found.append((int(chapter[1]), stripped))
    return found


def _plain(text: str) -> str:
    for old, new in _REPLACED.items():
        text = text.replace(old, new)
    text = text.encode("ascii", "ignore").decode()
    return re.sub(r"\s+", " ", text).replace(" ,", ",").strip()


def _pieces(sentences: list[str]) -> set[str]:
    """Return whole sentences, their clauses, and windows of three to eight words."""
    rng, pieces = random.Random(1), set()
    for sentence in sentences:
        words = sentence.split()
        candidates = [sentence, *re.split(r"(?<=[,;:])\s+", sentence)]
        for start in range(0, len(words), 4):
            candidates.append(" ".join(words[start : start + rng.randint(3, 8)]))
        pieces |= {
            piece for part in candidates if 4 <= len(piece := part.strip(" ;:-")) <= MAX_LETTERS
        }
    return pieces


_SPECIAL = (
    "<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>", "<|phoneme_start|>",
    "<|phoneme_end|>", "<|text|>", "<|voice|>", "<|interleave|>", "<|audio_start|>",
    "<|audio_end|>", "<|audio_pad|>",
)  # fmt: skip
_WHOLE = (
    "convert the provided text to speech reference to the following:\n\nText:\n",
    "convert the provided text to speech",
    "\n\nSpeech:\n",
    "system\n",
    "user\n",
    "assistant\n",
    "<|speaker:0|>",
)
END, PAD = "<|im_end|>", "<|pad|>"


def make_tokenizer(num_semantic: int) -> Tokenizer:
    """Return the tokenizer of a model with `num_semantic` semantic codes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _WHOLE])
    tokenizer.add_special_tokens(
        [AddedToken(f"<|semantic:{code}|>", special=True) for code in range(num_semantic)]
    )
    return tokenizer


def write_tokenizer(folder: Path, num_semantic: int) -> None:
    """Write `tokenizer.json` into a checkpoint folder."""
    make_tokenizer(num_semantic).save(str(folder / "tokenizer.json"))
