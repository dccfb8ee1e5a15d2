"""Have English heard by PocketSphinx, whose acoustic and language model nobody trained here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lab.training.evaluation.spectra import RATE, Wave
from ttsweb.install.extras import require_extra

_FULL_SCALE = 32767
# Faint noise, the same each time: silence without any, as synthesisers make it, is heard as words.
_NOISE = {"dither": True, "seed": 1}


class Recogniser:
    """Hear waves [N] at `RATE`; get this process's one from `recogniser()`.

    Each wave is heard by itself: what was heard before changes nothing.
    """

    def __init__(self) -> None:
        require_extra("asr", "Counting the words that are heard")
        from pocketsphinx import Decoder

        self._decoder: Any = Decoder(samprate=RATE, loglevel="FATAL", **_NOISE)
        self._any_words: str = self._decoder.current_search()

    def hear(self, wave: Wave) -> list[str]:
        """Return the words, in lower case and without marks."""
        return self._hear(wave)

    def choose(self, wave: Wave, sentences: Sequence[str]) -> int | None:
        """Return which of some sentences a wave says; None where it says none of them.

        Raises:
            ValueError: the dictionary lacks a word.
        """
        spoken = [" ".join(split_words(sentence)) for sentence in sentences]
        if unknown := {word for text in spoken for word in text.split() if not self.knows(word)}:
            raise ValueError(f"the recogniser's dictionary lacks {', '.join(sorted(unknown))}")
        rules = " | ".join(f"( {text} )" for text in spoken)
        self._decoder.add_jsgf_string("choice", f"#JSGF V1.0;\ngrammar g;\npublic <s> = {rules};\n")
        self._decoder.activate_search("choice")
        try:
            heard = " ".join(self._hear(wave))
        finally:
            self._decoder.activate_search(self._any_words)
            self._decoder.remove_search("choice")
        return spoken.index(heard) if heard in spoken else None

    def knows(self, word: str) -> bool:
        """Say whether the dictionary has a word in lower case."""
        return self._decoder.lookup_word(word) is not None

    def _hear(self, wave: Wave) -> list[str]:
        samples = (np.clip(wave, -1.0, 1.0) * _FULL_SCALE).astype("<i2").tobytes()
        if not samples:
            return []
        self._decoder.reinit_feat()  # what it learnt of noise and level in the wave before
        self._decoder.start_utt()
        self._decoder.process_raw(samples, no_search=False, full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return found.hypstr.split() if found is not None else []


@lru_cache(maxsize=1)
def recogniser() -> Recogniser:
    """Return the recogniser, loaded on first use.

    Raises:
        StepError: PocketSphinx is not installed; the text says how to get it.
    """
    return Recogniser()


def split_words(text: str) -> list[str]:
    """Return the words of a text as the recogniser writes them: lower case, apostrophes inside."""
    return re.findall(r"[a-z]+(?:'[a-z]+)*", text.lower().replace("\u2019", "'"))
