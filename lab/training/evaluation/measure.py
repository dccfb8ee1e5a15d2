"""Compute the figures of a checkpoint: words, voices, ends, speed, and the controls beside them.

What is said are sentences of the book, and others that differ in one word. Which of them a
recording says is found by dynamic time warping over cepstra, pitch by YIN (de Cheveigné and
Kawahara, 2002).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lab.training.espeak import REFERENCE_TEXT, EspeakVoice
from lab.training.evaluation.clean_speech import MeasuredVoices, clean_wave, control_wave
from lab.training.evaluation.speaking import Speaker, Spoken
from lab.training.texts import read_corpus

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


SAMPLE_RATE = 44100
HOP = 512
_WINDOW = 1024
_BANDS = 80
_CEPSTRA = 19  # without the level
_SPEECH_DECADES = 1.6  # below the loudest frame; quieter ones are pauses
_FLOOR = 1e-2


@lru_cache(maxsize=1)
def _mel_filters() -> Floats:
    hz = np.fft.rfftfreq(_WINDOW, 1 / SAMPLE_RATE)[None]
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 11000 / 700), _BANDS + 2) / 2595) - 1)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    area = (2.0 / (edges[2:] - edges[:-2]))[:, None]
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * area * 40)


@lru_cache(maxsize=1)
def _cosines() -> Floats:
    places = (np.arange(_BANDS) + 0.5) * np.pi / _BANDS
    orders = np.arange(1, _CEPSTRA + 1)[:, None]
    return np.asarray(np.cos(orders * places) * np.sqrt(2 / _BANDS))


def log_mel(wave: npt.NDArray[np.floating]) -> Floats:
    """Return log10 mel magnitudes [frames, 80] of a wave [N] at 44.1 kHz, one every 11.6 ms."""
    padded = np.pad(np.asarray(wave, np.float64), _WINDOW // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP]
    magnitudes = np.abs(np.fft.rfft(windows * np.hanning(_WINDOW + 1)[:-1]))
    return np.asarray(np.log10(magnitudes @ _mel_filters().T + _FLOOR))


def speech_frames(mel: Floats) -> Floats:
    """Return the frames of a log-mel spectrogram that are no pause."""
    level = mel.mean(1)
    return np.asarray(mel[level > level.max() - _SPEECH_DECADES])


def cepstra(mel: Floats) -> Floats:
    """Return cepstra [frames, 19] of the speech, each freed from its mean and scale.

    What the voice, the room and the level add to every frame is so taken out.
    """
    raw = speech_frames(mel) @ _cosines().T
    return np.asarray((raw - raw.mean(0)) / (raw.std(0) + 1e-3))


def distances(said: Floats, candidates: Sequence[Floats]) -> Floats:
    """Return the cost per step of warping `said` [n, D] onto each candidate [m, D].

    Steps go forward in one of the two or in both; all candidates are walked at once.
    """
    longest = max(len(candidate) for candidate in candidates)
    count, rows = len(candidates), len(said)
    local = np.full((count, rows, longest), 1e9)
    for index, candidate in enumerate(candidates):
        square = (said**2).sum(1)[:, None] + (candidate**2).sum(1) - 2 * said @ candidate.T
        local[index, :, : len(candidate)] = np.sqrt(np.maximum(square, 0))
    ends = np.array([len(candidate) for candidate in candidates])
    return np.asarray(_walk(local)[np.arange(count), ends] / (rows + ends))


def _walk(local: Floats) -> Floats:
    """Return the cheapest cost of reaching every column at the last row, [count, columns + 1].

    Cells of one antidiagonal depend only on the two before it, so they are taken together.
    """
    count, rows, columns = local.shape
    best = np.full((count, rows + 1, columns + 1), np.inf)
    best[:, 0, 0] = 0
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        before = np.minimum(np.minimum(best[:, i - 1, j - 1], best[:, i - 1, j]), best[:, i, j - 1])
        best[:, i, j] = before + local[:, i - 1, j - 1]
    return np.asarray(best[:, rows])


LOWEST_HZ, HIGHEST_HZ = 60.0, 420.0
_RATE = 22050
_HOP = 256
_KEPT_BELOW_HZ, _TAPS = 1500.0, 64
_DIP = 0.15  # the first dip below this is the period
_VOICED = 0.30  # a frame whose deepest dip is above this has no pitch
_LOUD = 0.08  # of the loudest frame's power
_FEWEST_FRAMES = 4


def median_pitch(wave: npt.NDArray[np.floating]) -> float | None:
    """Return the median pitch in Hz of the voiced frames of a wave at 44.1 kHz.

    None means that too little of it is voiced to say.
    """
    pitches = frame_pitches(wave)
    voiced = pitches[pitches > 0]
    return float(np.median(voiced)) if len(voiced) >= _FEWEST_FRAMES else None


def frame_pitches(wave: npt.NDArray[np.floating]) -> Floats:
    """Return the pitch in Hz of every 11.6 ms of a wave at 44.1 kHz; 0 where there is none."""
    samples = np.asarray(wave, np.float64)
    samples = np.convolve(samples, _low_pass(), mode="same")[::2]  # to 22.05 kHz
    longest = int(_RATE / LOWEST_HZ) + 2
    size = 2 * longest
    if len(samples) < size:
        return np.zeros(0)
    windows = np.lib.stride_tricks.sliding_window_view(samples, size)[::_HOP]
    power = np.square(windows).mean(1)
    dips = _normalised_difference(windows, longest)
    pitches = np.array([_first_dip(row) for row in dips])
    return np.where(power > _LOUD * power.max(), pitches, 0.0)


def _low_pass() -> Floats:
    """Return a filter for 44.1 kHz that keeps what tells the pitch.

    A period is no whole number of samples, so that above some kilohertz two of them never match.
    """
    places = np.arange(-_TAPS, _TAPS + 1)
    kernel = np.sinc(2 * _KEPT_BELOW_HZ / (2 * _RATE) * places) * np.hanning(2 * _TAPS + 1)
    return np.asarray(kernel / kernel.sum())


def _normalised_difference(windows: Floats, longest: int) -> Floats:
    """Return YIN's d'(lag) for lags 0..longest of each window [frames, 2 longest]."""
    frames, size = windows.shape
    width = size - longest
    spectrum = np.fft.rfft(windows, 2 * size)
    head = np.fft.rfft(windows[:, :width], 2 * size)
    product = np.fft.irfft(spectrum * head.conj())[:, : longest + 1]
    energy = np.cumsum(np.pad(windows**2, ((0, 0), (1, 0))), axis=1)
    lags = np.arange(longest + 1)
    moved = energy[:, lags + width] - energy[:, lags]
    difference = np.maximum(moved[:, :1] + moved - 2 * product, 0)
    mean = np.cumsum(difference[:, 1:], axis=1) / np.arange(1, longest + 1)
    normalised = np.ones((frames, longest + 1))
    normalised[:, 1:] = difference[:, 1:] / np.maximum(mean, 1e-12)
    return normalised


def _first_dip(row: Floats) -> float:
    """Return the pitch of one frame from its normalised difference, 0 where it has none."""
    low, high = int(_RATE / HIGHEST_HZ), len(row) - 1
    below = np.flatnonzero(row[low:high] < _DIP)
    if len(below):
        lag = low + int(below[0])
        while lag + 1 < high and row[lag + 1] < row[lag]:
            lag += 1
    else:
        lag = low + int(np.argmin(row[low:high]))
        if row[lag] > _VOICED:
            return 0.0
    before, here, after = row[lag - 1], row[lag], row[min(lag + 1, len(row) - 1)]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend if bend > 0 else 0.0
    return float(_RATE / (lag + np.clip(shift, -0.5, 0.5)))


NUM_SENTENCES, NUM_HELD_OUT_VOICE, NUM_CANDIDATES = 40, 20, 10


def evaluation_sentences() -> list[str]:
    """Return forty sentences of the book that is trained on, always the same."""
    chosen = [
        text for text in read_corpus().sentences if 28 <= len(text) <= 58 and text[0].isupper()
    ]
    random.Random(0).shuffle(chosen)
    return sorted(chosen[:NUM_SENTENCES])


def one_word_changed(sentence: str, sentences: list[str], seed: int) -> list[str]:
    """Return the sentence and then nine that differ from it in one word of as many letters."""
    rng = random.Random(seed)
    vocabulary = sorted({word for text in sentences for word in re.findall(r"[A-Za-z]{4,}", text)})
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
