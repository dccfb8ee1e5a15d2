"""Screen a rendering: tell from its numbers whether it may be bad, and how bad.

What is found is a pure function of the text, the voice's clips, the codes and the audio, so that a
take is judged alike whenever and wherever it is rendered. What only shows beside the other takes of
a job is found in `synth.transitions.takes`.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from synth.contract import AudioArray, CodesArray, FinishReason, Reference, RenderSpec, SegmentAudio
from workers.audio.clips import FLOOR_DBFS, FULL_SCALE, WINDOW_SECONDS, dbfs

Bools = npt.NDArray[np.bool_]

QUIET_BELOW_PEAK_DB = 40.0  # a window this far below the loudest one is a pause
QUIET_DBFS = -65.0  # and so is one below this, whatever the others are
_SPECTRUM = 1024
_FEWEST_PERIOD_FRAMES, _LONGEST_PERIOD_FRAMES = 4, 220  # about 0.2 and 10 seconds
_FEWEST_LOOP_FRAMES = 16  # a robot's vowel repeats itself for half a second
_FEWEST_CODES = 3  # different ones in what is repeated: a held vowel is no loop


@dataclass(frozen=True, slots=True)
class Measured:
    """Hold what was measured of a rendering; all times are in seconds.

    `active_dbfs` is the level where it is not silent, `loudest_dbfs` that of the loudest 20 ms.
    `noise_share` is the flatness of the spectrum, 0 to 1: about 0.56 for white noise, below 0.3 for
    speech. `loop_share` is how much of the worst stretch equals what came one period before and
    two; `stuck_seconds` is how long one and the same code is heard.
    """

    seconds: float
    active_dbfs: float
    loudest_dbfs: float
    silence_share: float
    leading_silence: float
    trailing_silence: float
    inner_silence: float
    clipped_share: float
    noise_share: float
    loop_share: float
    stuck_seconds: float


def measure_rendering(codes: CodesArray, audio: AudioArray, sample_rate: int) -> Measured:
    """Measure codes int16 [K, T] and their audio float32 [N], which is finite."""
    window = max(1, round(WINDOW_SECONDS * sample_rate))
    seconds = len(audio) / sample_rate
    whole = audio[: len(audio) // window * window].reshape(-1, window)
    if not len(whole) or not codes.shape[1]:
        return Measured(seconds, FLOOR_DBFS, FLOOR_DBFS, 1.0, seconds, seconds, seconds, 0, 0, 0, 0)
    power = np.einsum("ij,ij->i", whole, whole, dtype=np.float64) / window
    loudest = float(power.max())
    quiet_db = max(QUIET_DBFS, 10 * math.log10(loudest + 1e-12) - QUIET_BELOW_PEAK_DB)
    is_active = power > 10 ** (quiet_db / 10)
    active = np.flatnonzero(is_active)
    length = window / sample_rate
    lead, tail, inner = float(len(power)), float(len(power)), float(len(power))
    if len(active):
        lead, tail = float(active[0]), float(len(power) - 1 - active[-1])
        inner = float(np.diff(active).max() - 1) if len(active) > 1 else 0.0
    level = float(power[is_active].mean()) if len(active) else 0.0
    places = np.arange(codes.shape[1]) * len(is_active) // codes.shape[1]  # of frames' windows
    heard: Bools = is_active[np.minimum(places, len(is_active) - 1)]
    return Measured(
        seconds=seconds,
        active_dbfs=dbfs(math.sqrt(level)),
        loudest_dbfs=dbfs(math.sqrt(loudest)),
        silence_share=1 - len(active) / len(power),
        leading_silence=lead * length,
        trailing_silence=tail * length,
        inner_silence=inner * length,
        clipped_share=float(np.count_nonzero(np.abs(audio) >= FULL_SCALE)) / len(audio),
        noise_share=_flatness(audio),
        loop_share=_loop_share(codes[0], heard),
        stuck_seconds=_longest_run(heard[1:] & (codes[0, 1:] == codes[0, :-1]))
        * seconds
        / codes.shape[1],
    )


def _flatness(audio: AudioArray) -> float:
    """Return the median over loud windows of the spectrum's geometric to arithmetic mean."""
    windows = audio[: len(audio) // _SPECTRUM * _SPECTRUM].reshape(-1, _SPECTRUM)
    if not len(windows):
        return 0.0
    spectra = np.abs(np.fft.rfft(windows * np.hanning(_SPECTRUM).astype(np.float32))) ** 2
    total = spectra.sum(axis=1)
    loud = spectra[total > total.max() * 1e-3] + 1e-12
    if not len(loud):
        return 0.0
    return float(np.median(np.exp(np.log(loud).mean(axis=1)) / loud.mean(axis=1)))


def _loop_share(semantic: npt.NDArray[np.int16], heard: Bools) -> float:
    """Return which share of the worst two periods equals what came a period before, 0 to 1.

    A stretch of two periods that equals the one a period earlier is the same thing three times; a
    short thing must come more often.
    """
    frames, worst = len(semantic), 0.0
    for period in range(_FEWEST_PERIOD_FRAMES, min(frames // 3, _LONGEST_PERIOD_FRAMES) + 1):
        stretch = max(2 * period, _FEWEST_LOOP_FRAMES)
        if period + stretch > frames:
            break
        same = (semantic[period:] == semantic[:-period]) & heard[period:]
        sums = np.concatenate(([0], np.cumsum(same)))
        shares = (sums[stretch:] - sums[:-stretch]) / stretch
        place = int(shares.argmax())
        codes = semantic[place + period : place + period + stretch]
        if shares[place] > worst and len(np.unique(codes)) >= _FEWEST_CODES:
            worst = float(shares[place])
    return worst


def _longest_run(flags: Bools) -> int:
    edges = np.flatnonzero(np.concatenate(([True], ~flags, [True])))
    return int(np.diff(edges).max() - 1)


USUAL_LETTERS_PER_SECOND = 14.0  # read aloud in most alphabets, pauses at commas included
_SLOWEST, _FASTEST = 9.0, 20.0  # a clip beyond these says more of its transcript than of its pace
_PAUSE_SECONDS = 0.3  # around every utterance, however short
_TAG = re.compile(r"<\|[^|>]*\|>")
_BRACKET = re.compile(r"\[[^\[\]]*\]")
# How many letters of an alphabet take as long as one of these.
_IDEOGRAPH, _KANA, _HANGUL, _DIGIT, _MARK, _SYMBOL = 3.0, 2.0, 2.5, 4.0, 0.5, 6.0
_WEIGHTS = {
    "Lu": 1.0, "Ll": 1.0, "Lt": 1.0, "Mn": _MARK, "Mc": _MARK, "Nd": _DIGIT,
    "Sc": _SYMBOL, "Sm": _SYMBOL, "No": _SYMBOL,
}  # fmt: skip
_SCRIPTS = (  # first and last code point of letters without case
    (0x3040, 0x30FF, _KANA), (0xAC00, 0xD7AF, _HANGUL), (0x3400, 0x9FFF, _IDEOGRAPH),
    (0xF900, 0xFAFF, _IDEOGRAPH), (0x20000, 0x10FFFF, _IDEOGRAPH),
)  # fmt: skip


def letters_of(text: str) -> float:
    """Return a text's length in letters of an alphabet; tags and cues in brackets have none.

    An ideograph, a digit or a symbol that is read as a word counts as several.
    """
    return sum(map(_weight, _BRACKET.sub(" ", _TAG.sub(" ", text))))


def num_cues(text: str) -> int:
    return len(_BRACKET.findall(text))


def expected_seconds(text: str, pace: float) -> float:
    """Return how long a text takes at a pace in letters per second."""
    return _PAUSE_SECONDS + letters_of(text) / pace


def pace_of(references: Iterable[Reference], *, seconds_per_frame: float) -> float:
    """Return how many letters a second a voice's clips speak, 9 to 20.

    Where there is no clip, or none with a transcript, it is what is usual.
    """
    letters = seconds = 0.0
    for reference in references:
        length = reference.codes.shape[1] * seconds_per_frame - _PAUSE_SECONDS
        spoken = letters_of(reference.text)
        if spoken and length > 0:
            letters, seconds = letters + spoken, seconds + length
    if not seconds:
        return USUAL_LETTERS_PER_SECOND
    return min(max(letters / seconds, _SLOWEST), _FASTEST)


def most_repeats(text: str) -> int:
    """Return how often one to four words follow upon themselves at most; 1 where they never do."""
    words = [re.sub(r"\W", "", word).casefold() for word in text.split()]
    words = [word for word in words if word]
    most = 1
    for length in range(1, 5):
        run = 0
        for place in range(length, len(words)):
            run = run + 1 if words[place] == words[place - length] else 0
            most = max(most, 1 + run // length)
    return most


def _weight(character: str) -> float:
    if character.isascii():
        if character.isalpha():
            return 1.0
        if character.isdigit():
            return _DIGIT
        return _SYMBOL if character in "%&+=@#$" else 0.0
    if (category := unicodedata.category(character)) != "Lo":
        return _WEIGHTS.get(category, 0.0)
    point = ord(character)
    return next((weight for low, high, weight in _SCRIPTS if low <= point <= high), 1.0)


# Wide enough that of 245 sentences of the demo checkpoint one was flagged, which was cut short.
SHORTEST_SHARE, SPARE_SHORT_SECONDS = 0.5, 0.1  # of what a text should take
LONGEST_SHARE, SPARE_LONG_SECONDS, CUE_SECONDS = 2.2, 0.6, 2.0
SILENT_DBFS = -50.0
MOST_SILENCE = 0.6
MOST_SILENCE_AT_ENDS_SECONDS, MOST_SILENCE_INSIDE_SECONDS = 1.2, 1.5
MOST_CLIPPED = 0.001
MOST_NOISE = 0.35
MOST_LOOP = 0.6
MOST_STUCK_SECONDS = 1.0
_CUT_SHORT_SCORE = 0.4  # of a rendering that was stopped and did not end
_WORST_FACTOR, _FLAG_FACTOR = 0.01, 0.8


@dataclass(frozen=True, slots=True)
class Check:
    """Compare one value with its limit; the name is that of the flag which it raises.

    `is_least` says that the value must be at least the limit, and not at most.
    """

    name: str
    value: float
    limit: float
    is_least: bool = False

    @property
    def is_flagged(self) -> bool:
        return self.value < self.limit if self.is_least else self.value > self.limit

    @property
    def factor(self) -> float:
        """Return what this leaves of the score, 0.01 to 0.8 for a flagged one and 1 for another."""
        if not self.is_flagged:
            return 1.0
        good, bad = (self.value, self.limit) if self.is_least else (self.limit, self.value)
        return max(_FLAG_FACTOR * (good / bad if bad > 0 else 0.0), _WORST_FACTOR)


@dataclass(frozen=True, slots=True)
class Quality:
    """Hold what the screen found: flags' names, a score from 0 to 1, and the numbers."""

    score: float
    flags: list[str]
    measures: dict[str, Any]


def screen(spec: RenderSpec, rendered: SegmentAudio) -> Quality:
    """Judge a rendering, whose audio is finite, as the speech of its text by its voice.

    The measures are `screen`, a list of name, value and limit for each check, `active_dbfs`, the
    level of what is heard, and `pace`, how long it is by how long it should be.
    """
    measured = measure_rendering(rendered.codes, rendered.audio, rendered.sample_rate)
    frames = max(rendered.codes.shape[1], 1)
    pace = pace_of(spec.references, seconds_per_frame=measured.seconds / frames)
    expected = expected_seconds(spec.text, pace)
    checks = _checks(spec.text, measured, expected)
    flags = [check.name for check in checks if check.is_flagged]
    score = 1.0
    for check in checks:
        score *= check.factor
    if rendered.finish_reason != FinishReason.END:
        flags.append(str(rendered.finish_reason))
        score *= _CUT_SHORT_SCORE
    shown = [
        {"name": one.name, "value": round(one.value, 4), "limit": round(one.limit, 4)}
        for one in checks
    ]
    measures: dict[str, Any] = {
        "screen": shown,
        "active_dbfs": round(measured.active_dbfs, 2),
        "pace": round(measured.seconds / expected, 4),
    }
    return Quality(round(score, 4), flags, measures)


def _checks(text: str, measured: Measured, expected: float) -> list[Check]:
    """Return all checks; cues such as `[laugh]` make room for themselves."""
    room = CUE_SECONDS * num_cues(text)
    shortest = SHORTEST_SHARE * expected - SPARE_SHORT_SECONDS if letters_of(text) else 0.0
    longest = LONGEST_SHARE * expected + SPARE_LONG_SECONDS + room
    inner = MOST_SILENCE_INSIDE_SECONDS + room
    ends = MOST_SILENCE_AT_ENDS_SECONDS + room
    # Words that the text itself repeats may well come out as the same codes again.
    loop = MOST_LOOP if most_repeats(text) < 3 else 1.0
    return [
        Check("too_short", measured.seconds, shortest, is_least=True),
        Check("too_long", measured.seconds, longest),
        Check("silent", -measured.loudest_dbfs, -SILENT_DBFS),
        Check("mostly_silence", measured.silence_share, MOST_SILENCE if not room else 1.0),
        Check("leading_silence", measured.leading_silence, ends),
        Check("trailing_silence", measured.trailing_silence, ends),
        Check("long_pause", measured.inner_silence, inner),
        Check("clipping", measured.clipped_share, MOST_CLIPPED),
        Check("noise", measured.noise_share, MOST_NOISE),
        Check("repetition", measured.loop_share, loop),
        Check("stuck", measured.stuck_seconds, MOST_STUCK_SECONDS),
    ]
