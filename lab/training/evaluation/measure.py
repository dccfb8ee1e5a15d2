"""Compute the figures of a checkpoint's speech, each beside the teacher's and the round trip's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from lab.training.evaluation.numbers import number_sentences
from lab.training.evaluation.pictures import Panel
from lab.training.evaluation.pitch import compare_melodies, median_pitch
from lab.training.evaluation.recognition import recogniser, split_words
from lab.training.evaluation.scores import Scores
from lab.training.evaluation.speaker_embedding import embed_speaker
from lab.training.evaluation.speaking import Report, Sample, Spoken, Voices, teacher_wave
from lab.training.evaluation.spectra import RATE, Wave, cepstra, distances, log_mel
from lab.training.evaluation.texts import (
    CLIP_TEXT,
    LONG_LETTERS,
    PLAIN_SENTENCES,
    book_sentences,
    one_word_changed,
    other_endings,
)
from lab.training.speakers import DEMO, HELD_OUT, Speaker
from workers.rendering.transcriber import count_errors

EARLY, RUNAWAY = 0.6, 1.6  # of the teacher's length
MOST_ONE_WORD = 40  # sentences: each takes the speech of ten
_TOO_SHORT = RATE // 10  # samples: nothing can be told from less
_PICTURES = 6


@dataclass(slots=True)
class Pictures:
    """Hold what is drawn: rows of waves, and melodies."""

    waves: list[tuple[Wave, Wave, Wave]] = field(default_factory=list)
    melodies: list[Panel] = field(default_factory=list)


class Evaluation:
    """Walk through the sentences of the subjects that are asked for.

    Args:
        subjects: of `scores.SUBJECTS`.
        most: sentences of each kind at most.
    """

    def __init__(
        self, voices: Voices, subjects: Collection[str], most: int | None, report: Report
    ) -> None:
        self._voices, self._subjects, self._most, self._report = voices, subjects, most, report
        self.scores, self.pictures = Scores(), Pictures()
        self.pitches: dict[str, list[float]] = {}

    def run(self) -> None:
        """Measure; what is found lies in `scores`, `pictures` and `pitches`."""
        if "words" in self._subjects:
            self._say_plain()
        if {"words", "one_word", "pitch", "ends"} & set(self._subjects):
            self._say_book()
        if {"speaker", "pitch"} & set(self._subjects):
            self._say_held_out()
        if "numbers" in self._subjects:
            self._say_numbers()

    def _say_plain(self) -> None:
        for index, text in enumerate(PLAIN_SENTENCES[: self._most]):
            for speaker in DEMO:
                sample = self._sample(text, speaker, 1000 + index)
                self._count_words("words_wrong", sample)
            self._report(f"plain sentence {index + 1}")

    def _say_book(self) -> None:
        for index, text in enumerate(book_sentences()[: self._most]):
            is_long = len(text) >= LONG_LETTERS
            if self._subjects == {"ends"} and not is_long:
                continue
            sample = self._sample(text, DEMO[index % len(DEMO)], index)
            if "words" in self._subjects:
                self._count_words("words_wrong_book", sample)
            if "one_word" in self._subjects and index < MOST_ONE_WORD:
                self._find_one_word(sample, index)
            if "pitch" in self._subjects:
                self._compare_pitch(sample)
            if "ends" in self._subjects and is_long:
                self._find_end(sample)
            self._draw_waves(sample)
            self._report(f"book sentence {index + 1}, {sample.speaker.name}")

    def _say_held_out(self) -> None:
        clips = [teacher_wave(CLIP_TEXT, speaker) for speaker in HELD_OUT]
        texts = [text for text in book_sentences() if 40 <= len(text) < LONG_LETTERS]
        known = [embed_speaker(clip) for clip in clips] if "speaker" in self._subjects else []
        for index, speaker in enumerate(HELD_OUT[: self._most]):
            sample = self._sample(texts[index % len(texts)], speaker, 2000 + index)
            waves = sample.said.wave, sample.teacher, sample.round_trip
            if "speaker" in self._subjects:
                nearest = [int(np.argmax([embed_speaker(w) @ one for one in known])) for w in waves]
                self.scores.add("speaker_of_20", [found == index for found in nearest])
            if "pitch" in self._subjects:
                self._compare_median("pitch_within_20_held_out", sample)
            self._report(f"held-out speaker {index + 1}")

    def _say_numbers(self) -> None:
        for index, sentence in enumerate(number_sentences()[: self._most]):
            spoken = sentence.alternatives[0]
            sample = self._sample(spoken, DEMO[index % len(DEMO)], 3000 + index)
            waves = sample.said.wave, sample.teacher, sample.round_trip
            chosen = [recogniser().choose(wave, sentence.alternatives) for wave in waves]
            self.scores.add("numbers_of_10", [found == 0 for found in chosen])
            self._report(f"number {index + 1}: {sentence.written} {chosen}")

    def _sample(self, text: str, speaker: Speaker, seed: int) -> Sample:
        """Return a sentence as it was said, its length judged."""
        sample = Sample(self._voices, text, speaker, seed)
        ratio = len(sample.said.wave) / len(sample.teacher)
        self.scores.add("length_ratio", [ratio])
        self.scores.add("early", [ratio < EARLY])
        self.scores.add("runaway", [ratio > RUNAWAY or not sample.said.ended])
        return sample

    def _count_words(self, name: str, sample: Sample) -> None:
        wanted = split_words(sample.text)
        waves = sample.said.wave, sample.teacher, sample.round_trip
        wrong = [count_errors(wanted, recogniser().hear(wave)) for wave in waves]
        self.scores.add(name, wrong, weight=len(wanted))

    def _find_one_word(self, sample: Sample, seed: int) -> None:
        texts = one_word_changed(sample.text, book_sentences(), seed)
        waves = sample.said.wave, sample.control, sample.round_trip
        found = nearest(waves, [teacher_wave(text, sample.speaker) for text in texts])
        self.scores.add("one_word_of_10", [index == 0 for index in found])

    def _compare_pitch(self, sample: Sample) -> None:
        self._compare_median("pitch_within_20", sample)
        waves = sample.said.wave, sample.control, sample.round_trip
        compared = [
            compare_melodies(wave, sample.teacher) if len(wave) > _TOO_SHORT else None
            for wave in waves
        ]
        correlations = [0.0 if one is None else one.correlation for one in compared]
        self.scores.add("pitch_contour", correlations)
        if compared[0] is not None and len(self.pictures.melodies) < _PICTURES:
            self.pictures.melodies.append(Panel(sample.text, sample.speaker.name, compared[0]))

    def _compare_median(self, name: str, sample: Sample) -> None:
        wanted = median_pitch(teacher_wave(CLIP_TEXT, sample.speaker)) or float("nan")
        waves = sample.said.wave, sample.teacher, sample.round_trip
        pitches = [median_pitch(wave) or 0.0 for wave in waves]
        self.scores.add(name, [abs(pitch / wanted - 1) <= 0.2 for pitch in pitches])
        self.pitches.setdefault(sample.speaker.name, []).append(pitches[0])

    def _find_end(self, sample: Sample) -> None:
        endings = [teacher_wave(text, sample.speaker) for text in other_endings(sample.text)]
        said = (sample.said, Spoken(sample.control, True), Spoken(sample.round_trip, True))
        found = nearest([one.wave for one in said], endings)
        self.scores.add(
            "long_said_to_the_end",
            [
                index == 0 and one.ended and EARLY <= len(one.wave) / len(sample.teacher) <= RUNAWAY
                for index, one in zip(found, said, strict=True)
            ],
        )

    def _draw_waves(self, sample: Sample) -> None:
        if len(self.pictures.waves) < _PICTURES:
            row = sample.teacher, sample.round_trip, sample.said.wave
            self.pictures.waves.append(row)


def nearest(waves: Sequence[Wave], candidates: Sequence[Wave]) -> list[int]:
    """Return which candidate each wave says, -1 where it is too short to say anything."""
    spectra = [cepstra(log_mel(candidate)) for candidate in candidates]
    return [
        int(np.argmin(distances(cepstra(log_mel(wave)), spectra))) if len(wave) > _TOO_SHORT else -1
        for wave in waves
    ]
