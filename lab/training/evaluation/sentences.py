"""Choose what is said in the evaluation: unseen sentences, and others that differ in one word."""

from __future__ import annotations

import random
import re

from lab.training.texts import common_words, held_out_sentences, read_corpus

NUM_SENTENCES, NUM_HELD_OUT_VOICE, NUM_CANDIDATES = 40, 20, 10


def evaluation_sentences() -> list[str]:
    """Return the forty sentences, always the same."""
    return held_out_sentences(read_corpus(), NUM_SENTENCES)


def one_word_changed(sentence: str, sentences: list[str], seed: int) -> list[str]:
    """Return the sentence and then nine that differ from it in one word of as many letters."""
    rng = random.Random(seed)
    vocabulary = sorted(common_words(sentences))
    words = re.findall(r"[A-Za-z]{4,}", sentence)
    found = [sentence]
    while len(found) < NUM_CANDIDATES:
        word = rng.choice(words)
        same_length = [
            other
            for other in vocabulary
            if len(other) == len(word) and other.lower() != word.lower()
        ]
        if not same_length:
            words.remove(word)  # a word so long that no other is
            continue
        changed = re.sub(rf"\b{word}\b", rng.choice(same_length), sentence, count=1)
        if changed not in found:
            found.append(changed)
    return found
