"""Render the training speech: aligned clips for the language model, plain ones for the encoder."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from lab.training.acoustics import ROW_SAMPLES, ROWS_PER_FRAME, describe
from lab.training.alignment import (
    clarity_of,
    letter_positions,
    plain_states,
    row_clarity,
    row_times,
    spans_of,
    states_of,
)
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
