"""Compute the figures of a checkpoint: words, voices, ends, speed, and the controls beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lab.training.espeak import REFERENCE_TEXT, EspeakVoice
from lab.training.evaluation.clean_speech import MeasuredVoices, clean_wave, control_wave
from lab.training.evaluation.content import cepstra, distances, log_mel, speech_frames
from lab.training.evaluation.pitch import median_pitch
from lab.training.evaluation.sentences import NUM_CANDIDATES, NUM_HELD_OUT_VOICE, one_word_changed
from lab.training.evaluation.speaking import Speaker, Spoken

EARLY, RUNAWAY = 0.6, 1.6  # of the clean rendering's length
_TOO_SHORT = 4410  # samples: nothing can be told from less than 0.1 s
_PICTURES = 6
Wave = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Tally:
    """Count hits; `share` is NaN before the first."""

    hits: int = 0
    tries: int = 0

    def add(self, hit: bool) -> None:
        """Count one try."""
        self.hits += hit
        self.tries += 1

    @property
    def share(self) -> float:
        """Return the hits as a share of the tries."""
        return self.hits / self.tries if self.tries else float("nan")


@dataclass(slots=True)
class Figures:
    """Hold shares by name, of the model's speech and of the controls, and what to draw."""

    shares: dict[str, Tally] = field(default_factory=dict)
    controls: dict[str, Tally] = field(default_factory=dict)
    length_ratios: list[float] = field(default_factory=list)
    pitches: dict[str, list[float]] = field(default_factory=dict)
    pictures: list[tuple[Wave, Wave, Wave]] = field(default_factory=list)

    def add(self, name: str, hit: bool) -> None:
        """Count one try of a figure."""
        self.shares.setdefault(name, Tally()).add(hit)

    def add_control(self, name: str, hit: bool) -> None:
        """Count one try of a control."""
        self.controls.setdefault(name, Tally()).add(hit)


class Evaluation:
    """Walk through the sentences with one speaker."""

    def __init__(
        self,
        speaker: Speaker,
        voices: MeasuredVoices,
        sentences: list[str],
        report: Callable[[str], None],
    ) -> None:
        self._speaker, self._voices, self._report = speaker, voices, report
        self._sentences = sentences
        self._banks: dict[EspeakVoice, list[Floats]] = {}
        self.figures = Figures()

    def run(self) -> Figures:
        """Return all figures; the held-out voice comes last."""
        names = list(self._voices.trained)
        for index, sentence in enumerate(self._sentences):
            name = names[index % len(names)]
            self._measure(index, sentence, name)
            self._report(f"{index + 1}/{len(self._sentences)} {name}")
        for index, sentence in enumerate(self._sentences[:NUM_HELD_OUT_VOICE]):
            said = self._speaker.say(sentence, self._voices.held_out, seed=1000 + index)
            found = self._nearest_sentence(said.wave, self._voices.held_out)
            self.figures.add("heldout_nearest_of_40", found == index)
        return self.figures

    def _measure(self, index: int, sentence: str, name: str) -> None:
        voice, figures = self._voices.trained[name], self.figures
        clean, control = clean_wave(sentence, voice), control_wave(sentence, voice)
        said = self._speaker.say(sentence, voice, seed=index)
        returned = self._speaker.round_trip(clean)
        figures.add("nearest_of_40", self._nearest_sentence(said.wave, voice) == index)
        figures.add("nearest_of_40_roundtrip", self._nearest_sentence(returned, voice) == index)
        figures.add_control("nearest_of_40", self._nearest_sentence(control, voice) == index)
        candidates = [
            cepstra(log_mel(clean_wave(text, voice)))
            for text in one_word_changed(sentence, self._sentences, seed=index)
        ]
        figures.add("one_word_of_10", _nearest(said.wave, candidates) == 0)
        figures.add("one_word_roundtrip", _nearest(returned, candidates) == 0)
        figures.add_control("one_word_of_10", _nearest(control, candidates) == 0)
        self._measure_voice(name, said.wave, returned, clean)
        self._measure_end(said, clean)
        if len(figures.pictures) < _PICTURES:
            figures.pictures.append((clean, returned, said.wave))

    def _measure_voice(self, name: str, said: Wave, returned: Wave, clean: Wave) -> None:
        figures, voice = self.figures, self._voices.trained[name]
        wanted = median_pitch(clean_wave(REFERENCE_TEXT, voice)) or float("nan")
        for figure, wave in (("pitch_within_20", said), ("pitch_within_20_roundtrip", returned)):
            pitch = median_pitch(wave) if len(wave) > _TOO_SHORT else None
            figures.add(figure, pitch is not None and abs(pitch / wanted - 1) <= 0.2)
            if figure == "pitch_within_20":
                figures.pitches.setdefault(name, []).append(pitch or 0.0)
        figures.add("nearest_voice", self._nearest_voice(said) == name)
        figures.add("nearest_voice_roundtrip", self._nearest_voice(returned) == name)
        figures.add_control("nearest_voice", self._nearest_voice(clean) == name)

    def _measure_end(self, said: Spoken, clean: Wave) -> None:
        ratio = len(said.wave) / len(clean)
        self.figures.length_ratios.append(ratio)
        self.figures.add("early", ratio < EARLY)
        self.figures.add("runaway", ratio > RUNAWAY or not said.ended)

    def _nearest_sentence(self, wave: Wave, voice: EspeakVoice) -> int:
        if voice not in self._banks:
            self._banks[voice] = [
                cepstra(log_mel(clean_wave(text, voice))) for text in self._sentences
            ]
        return _nearest(wave, self._banks[voice])

    def _nearest_voice(self, wave: Wave) -> str | None:
        """Return the voice whose mean spectrum over all sentences is nearest, level apart."""
        if len(wave) <= _TOO_SHORT:
            return None
        shape = _shape([wave])
        off = {
            name: np.abs(shape - _shape(self._clean_of(voice))).mean()
            for name, voice in self._voices.trained.items()
        }
        return min(off, key=lambda name: off[name])

    def _clean_of(self, voice: EspeakVoice) -> list[Wave]:
        return [clean_wave(text, voice) for text in self._sentences[:12]]


def chance() -> dict[str, float]:
    """Return what guessing would give."""
    return {"nearest_of_40": 1 / 40, "one_word_of_10": 1 / NUM_CANDIDATES}


def _nearest(wave: Wave, candidates: Sequence[Floats]) -> int:
    """Return which candidate a wave says, -1 where it is too short to say anything."""
    if len(wave) <= _TOO_SHORT:
        return -1
    return int(np.argmin(distances(cepstra(log_mel(wave)), candidates)))


def _shape(waves: list[Wave]) -> Floats:
    """Return the mean log-mel spectrum of the speech in waves, without its level."""
    mean = np.concatenate([speech_frames(log_mel(wave)) for wave in waves]).mean(0)
    return np.asarray(mean - mean.mean())
