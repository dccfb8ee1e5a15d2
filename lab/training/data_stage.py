"""Render the training speech: aligned clips for the language model, plain ones for the encoder.

Aligned ones are on the codec's grid: every phone lasts a whole number of code frames. Without it
each code would tell where inside it a sound begins, which no text predicts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lab.training.acoustics import FRAME_SECONDS, ROW_SAMPLES, ROWS_PER_FRAME, describe
from lab.training.espeak import SAMPLE_RATE, VOICES, TrainedVoice, Utterance, espeak
from lab.training.shards import ALIGNED, PLAIN, Clip, shard_path, write_shard
from lab.training.texts import draw_text, read_corpus

MAX_SECONDS = 6.0
_MIN_FRAMES = 3


def make_shards(
    folder: Path, kind: str, count: int, clips: int, report: Callable[[str], None]
) -> None:
    """Make shards 0..count-1 of a kind, each of `clips` clips; those that exist are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = read_corpus()
    make = {ALIGNED: aligned_clip, PLAIN: plain_clip}[kind]
    for number in range(count):
        path = shard_path(folder, kind, number)
        if path.exists():
            continue
        rng = random.Random(f"{kind} {number}")
        made: list[Clip] = []
        while len(made) < clips:
            clip = make(draw_text(corpus, rng), len(made) % len(VOICES), rng)
            if clip is not None:
                made.append(clip)
        write_shard(path, made)
        frames = sum(clip.num_frames for clip in made)
        report(f"{path.name}: {len(made)} clips, {frames} frames")


def aligned_clip(text: str, voice: int, rng: random.Random | None = None) -> Clip | None:
    """Return a clip on the codec's grid; None if the synthesiser says too little or too much."""
    spoken = espeak().say(text, VOICES[voice].espeak)
    if not _is_usable(spoken):
        return None
    spans = spans_of(spoken)
    frames = sum(span.frames for span in spans)
    if frames < _MIN_FRAMES:
        return None
    wave = spoken.wave.astype(np.float64) / 32768.0
    centres = row_times(spans) * SAMPLE_RATE
    features = describe(wave, centres, VOICES[voice].pitch_hz, row_clarity(spans))
    return Clip(
        text=text,
        voice=voice,
        features=features.astype(np.float16),
        states=tuple(states_of(spans)),
        letters=np.array(letter_positions(spoken, spans, len(text)), np.float32),
        wave=np.zeros(0, np.int16),
    )


def plain_clip(text: str, voice: int, rng: random.Random) -> Clip | None:
    """Return a clip as the synthesiser speaks it, at a random pace and a slightly moved pitch."""
    setting = VOICES[voice].espeak
    moved = replace(
        setting, rate=rng.randint(135, 180), pitch=setting.pitch + rng.choice((-2, -1, 0, 0, 1, 2))
    )
    spoken = espeak().say(text, moved)
    return describe_plain(spoken, text, voice, VOICES[voice]) if _is_usable(spoken) else None


def describe_plain(spoken: Utterance, text: str, voice: int, trained: TrainedVoice) -> Clip:
    """Return a clip with its waveform and the features of every row from its beginning on."""
    states = plain_states(spoken)
    rows = len(states) * ROWS_PER_FRAME
    centres = (np.arange(rows) + 0.5) * ROW_SAMPLES
    starts = np.array([start * SAMPLE_RATE for start, _ in spoken.phones])
    at = np.clip(np.searchsorted(starts, centres, side="right") - 1, 0, None)
    clarity = np.array([clarity_of(spoken.phones[index][1]) for index in at])
    wave = spoken.wave.astype(np.float64) / 32768.0
    features = describe(wave, centres.astype(np.float64), trained.pitch_hz, clarity)
    return Clip(
        text=text,
        voice=voice,
        features=features.astype(np.float16),
        states=tuple(states),
        letters=np.zeros(0, np.float32),
        wave=spoken.wave,
    )


def _is_usable(spoken: Utterance) -> bool:
    return bool(spoken.words and spoken.phones) and (
        0.15 < len(spoken.wave) / SAMPLE_RATE < MAX_SECONDS
    )


PAUSE = "_"
MAX_INDEX = 3  # frames of a phone are told apart up to this one; later ones count as it
_MAX_PAUSE_FRAMES = 5
_END_FRAMES = 1  # of silence after the last phone
# Phones whose sound above 1.5 kHz is mostly noise although they are voiced, then voiceless ones.
_BREATHY = ("z", "Z", "v", "D", "dZ", "h")
_VOICELESS = ("p", "t", "k", "f", "s", "S", "T", "tS", "x", "C", "?")


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Hold one phone: where it lies in the source in seconds, and the frames it is given."""

    phone: str
    start: float
    end: float
    frames: int


def spans_of(utterance: Utterance) -> list[Span]:
    """Return the phones in order with their frames; pauses are shortened, the last one to one."""
    seconds = len(utterance.wave) / SAMPLE_RATE
    ends = [start for start, _ in utterance.phones[1:]] + [seconds]
    spans: list[Span] = []
    for (start, phone), end in zip(utterance.phones, ends, strict=True):
        if end - start < 0.008 or not phone.strip():
            continue
        frames = max(1, round((end - start) / FRAME_SECONDS))
        if phone.startswith(PAUSE):
            phone, frames = PAUSE, min(frames, _MAX_PAUSE_FRAMES)
        spans.append(Span(phone, start, end, frames))
    while spans and spans[-1].phone == PAUSE:
        spans.pop()
    if spans:
        end = spans[-1].end
        spans.append(Span(PAUSE, end, max(seconds, end + 0.01), _END_FRAMES))
    return spans


def row_times(spans: list[Span]) -> npt.NDArray[np.float64]:
    """Return the source time in seconds of every row of features, `ROWS_PER_FRAME` a frame."""
    times = []
    for span in spans:
        count = span.frames * ROWS_PER_FRAME
        times.append(span.start + (span.end - span.start) * (np.arange(count) + 0.5) / count)
    return np.concatenate(times)


def row_clarity(spans: list[Span]) -> npt.NDArray[np.float64]:
    """Return for every row how much of the voicing its phone keeps above 1.5 kHz."""
    parts = [np.full(span.frames * ROWS_PER_FRAME, clarity_of(span.phone)) for span in spans]
    return np.concatenate(parts)


def clarity_of(phone: str) -> float:
    """Return a phone's share of voicing above 1.5 kHz, 0 to 0.9."""
    if phone in _BREATHY:
        return 0.1
    return 0.0 if phone.rstrip("2:;-") in _VOICELESS else 0.9


def states_of(spans: list[Span]) -> list[str]:
    """Return the state of every frame: its phone, and which frame of the phone it is."""
    return [
        f"{span.phone} {min(index, MAX_INDEX)}"
        for span in spans
        for index in range(1, span.frames + 1)
    ]


def plain_states(utterance: Utterance) -> list[str]:
    """Return the state at the middle of every frame of the speech as it is, not aligned."""
    starts = np.array([start for start, _ in utterance.phones])
    states = []
    for frame in range(-(-len(utterance.wave) // round(FRAME_SECONDS * SAMPLE_RATE))):
        time = (frame + 0.5) * FRAME_SECONDS
        at = int(np.searchsorted(starts, time, side="right")) - 1
        phone = utterance.phones[at][1] if at >= 0 else PAUSE
        index = 1 + int((time - starts[at]) / FRAME_SECONDS) if at >= 0 else MAX_INDEX
        phone = PAUSE if phone.startswith(PAUSE) else phone
        states.append(f"{phone} {min(index, MAX_INDEX)}")
    return states


def letter_positions(utterance: Utterance, spans: list[Span], letters: int) -> list[float]:
    """Return for every frame the letter that is spoken, as a position in the text of `letters`."""
    frame_ends = np.cumsum([span.frames for span in spans])
    starts = np.array([span.start for span in spans])
    first_frames = frame_ends - [span.frames for span in spans]
    begins = []
    for time, _, _ in utterance.words:
        # A word's event comes a little before or after its first phone's.
        at = min(int(np.searchsorted(starts, time - 0.004)), len(spans) - 1)
        begins.append(int(first_frames[at]))
    total = int(frame_ends[-1])
    positions = np.zeros(total)
    for word, (begin, end) in enumerate(zip(begins, [*begins[1:], total], strict=True)):
        _, first, length = utterance.words[word]
        if end > begin:
            positions[begin:end] = first + length * (np.arange(end - begin) + 0.5) / (end - begin)
    return [float(value) for value in np.clip(positions, 0, max(letters - 1, 0))]
