"""Take a text that is still being written, and give out its sentences as soon as they are whole."""

from __future__ import annotations

from dataclasses import dataclass

from synth.text.normalise import is_speakable
from synth.text.pauses import DEFAULT_PAUSES
from synth.text.sentences import CLOSERS, SENTENCE_ENDS, split_sentences

# Without any end of a sentence this is cut at a blank: looking for an end takes time, and each
# piece of text is looked at together with what is unfinished.
MOST_UNFINISHED_CHARS = 2000
# Put behind a blank at the end to see whether a sentence would begin here: behind an abbreviation
# none does.
_PROBE = "Next"


@dataclass(frozen=True, slots=True)
class Passage:
    """Hold whole sentences that follow each other, and the pause in ms that is heard after them."""

    text: str
    pause_after_ms: int


class GrowingText:
    """Hold what was written and not given out yet.

    A sentence is whole when another one begins behind it, or would behind the blank after it, at
    the end of a paragraph, or at the end of the text; `3.` may go on as `3.14`.
    """

    def __init__(self, language: str = "") -> None:
        self._language = language
        self._whole: list[str] = []
        self._unfinished = ""

    @property
    def num_chars(self) -> int:
        """Return how many characters were not given out."""
        return sum(map(len, self._whole)) + len(self._unfinished)

    def add(self, text: str) -> None:
        *paragraphs, last = (self._unfinished + text).split("\n")
        for paragraph in paragraphs:
            self._whole.append(f"{paragraph}\n")
        *sentences, self._unfinished = self._sentences(last) or [""]
        self._whole += sentences
        if len(self._unfinished) > MOST_UNFINISHED_CHARS:
            cut = self._unfinished.rfind(" ", 1, MOST_UNFINISHED_CHARS) + 1
            cut = cut or MOST_UNFINISHED_CHARS
            self._whole.append(self._unfinished[:cut])
            self._unfinished = self._unfinished[cut:]

    def end_sentence(self) -> None:
        """Take what looks like a sentence's end for one: nothing has followed for a while."""
        bare = self._unfinished.rstrip().rstrip(CLOSERS)
        if bare.endswith(tuple(SENTENCE_ENDS)):
            self.end()

    def end(self) -> None:
        """Take what is left for whole."""
        self._whole.append(self._unfinished)
        self._unfinished = ""

    def take(self, *, most_chars: int | None = None) -> Passage | None:
        """Return whole sentences that were not given out; None where none can be spoken.

        Args:
            most_chars: what more sentences would exceed comes with the next call; at least
                `MOST_UNFINISHED_CHARS`, which one sentence may have.
        """
        count, num_chars = 0, 0
        for sentence in self._whole:
            num_chars += len(sentence)
            if most_chars is not None and count and num_chars > most_chars:
                break
            count += 1
        text, self._whole = "".join(self._whole[:count]), self._whole[count:]
        if not is_speakable(text):
            return self.take(most_chars=most_chars) if self._whole else None
        pauses = DEFAULT_PAUSES
        pause = pauses.paragraph if text.endswith("\n") else pauses.sentence
        return Passage(text.strip(), pause)

    def _sentences(self, text: str) -> list[str]:
        if not text.strip():
            return [text]
        language = self._language or "en"
        if text[-1].isspace():
            *found, probe = split_sentences(text + _PROBE, language)
            if probe == _PROBE:
                return [*found, ""]
        return split_sentences(text, language)
