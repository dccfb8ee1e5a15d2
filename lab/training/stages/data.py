"""Have texts spoken by the teachers, in turns; shards of what they said are kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from lab.training.flite import TEACHERS, Utterance, flite
from lab.training.shards import shard_path, write_shard
from lab.training.texts import align_words, draw_text, read_corpus

WAVE_EVERY = 4  # of this many utterances one keeps its waveform, for the encoder
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.2, 16.0
_FEWEST_VOICED = 10  # rows
_NO_WAVE = np.zeros(0, np.int16)


def make_shards(folder: Path, count: int, size: int, report: Callable[[str], None]) -> None:
    """Make shards 0 to `count` - 1 of `size` utterances each; those that exist are kept.

    Raises:
        FliteMissingError, DictionaryMissingError: what speaks, or lists words, is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    corpus = None
    for number in range(count):
        path = shard_path(folder, number)
        if path.exists():
            continue
        corpus = corpus or read_corpus()
        rng = random.Random(f"speech {number}")
        said: list[Utterance] = []
        while len(said) < size:
            utterance = say_to_train(draw_text(corpus, rng), TEACHERS[len(said) % len(TEACHERS)])
            if utterance is not None:
                keeps_wave = len(said) // len(TEACHERS) % WAVE_EVERY == 0
                said.append(utterance if keeps_wave else replace(utterance, wave=_NO_WAVE))
        write_shard(path, said)
        seconds = sum(each.seconds for each in said)
        report(f"data: {path.name}, {len(said)} sentences, {seconds / 60:.0f} minutes of speech")


def say_to_train(text: str, teacher: str) -> Utterance | None:
    """Return what a teacher says; None if it is too little or too much, or has other words."""
    said = flite().say(text, teacher)
    if not _SHORTEST_SECONDS < said.seconds < _LONGEST_SECONDS:
        return None
    if np.count_nonzero(said.pitch) < _FEWEST_VOICED:
        return None
    return said if align_words(text, [name for _, name in said.words]) is not None else None
