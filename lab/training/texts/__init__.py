"""Draw texts to train on, and find the words of a synthesiser in them."""

from lab.training.texts.corpus import MAX_LETTERS, Corpus, read_corpus
from lab.training.texts.dictionary import DictionaryMissingError
from lab.training.texts.drawing import draw_text
from lab.training.texts.word_places import align_words

__all__ = [
    "MAX_LETTERS",
    "Corpus",
    "DictionaryMissingError",
    "align_words",
    "draw_text",
    "read_corpus",
]
