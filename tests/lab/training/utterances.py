"""Make utterances without a synthesiser: phones that differ in colour and voicing."""

from __future__ import annotations

import numpy as np

from lab.training.flite import (
    NUM_CEPSTRA,
    NUM_STRENGTHS,
    ROW_SECONDS,
    SAMPLE_RATE,
    TEACHERS,
    Utterance,
)

PHONES = ("aa", "iy", "s", "m")
_VOICELESS = "s"
_PAUSE_ROWS = 30


def make_utterance(seed: int = 0, words: int = 3, teacher: str = TEACHERS[0]) -> Utterance:
    """Return an utterance whose words are letters, each said as two phones, between pauses."""
    rng = np.random.default_rng(seed)
    names = rng.choice(list("abcdefg"), words)
    phones: list[tuple[str, int]] = [("pau", _PAUSE_ROWS)]
    starts: list[int] = []
    for _ in range(words):
        starts.append(sum(rows for _, rows in phones))
        phones += [(str(rng.choice(PHONES)), int(rng.integers(14, 40))) for _ in range(2)]
    phones.append(("pau", _PAUSE_ROWS))
    count = sum(rows for _, rows in phones)
    cepstra = rng.normal(0, 0.02, (count, NUM_CEPSTRA))
    pitch, strengths = np.zeros(count), np.zeros((count, NUM_STRENGTHS))
    course = 120 + 40 * TEACHERS.index(teacher) + 15 * np.sin(np.arange(count) / 30)
    timed, first = [], 0
    for name, rows in phones:
        own = slice(first, first + rows)
        if name == "pau":
            cepstra[own, 0] += 1.0
        else:
            cepstra[own, 0] += 6.0
            cepstra[own, 1 + PHONES.index(name)] += 1.0
        if name not in ("pau", _VOICELESS):
            pitch[own], strengths[own] = course[own], 0.9
        timed.append((first * ROW_SECONDS, (first + rows) * ROW_SECONDS, name))
        first += rows
    wave = rng.normal(0, 1000, round(count * ROW_SECONDS * SAMPLE_RATE))
    return Utterance(
        text=" ".join(names).capitalize() + ".",
        teacher=teacher,
        wave=wave.astype(np.int16),
        pitch=pitch.astype(np.float32),
        cepstra=cepstra.astype(np.float32),
        strengths=strengths.astype(np.float32),
        phones=tuple(timed),
        words=tuple(
            (start * ROW_SECONDS, str(name)) for start, name in zip(starts, names, strict=True)
        ),
    )


def make_speech(count: int = 24) -> list[Utterance]:
    """Return utterances of all teachers and several lengths."""
    return [
        make_utterance(seed, words=3 + seed % 4, teacher=TEACHERS[seed % len(TEACHERS)])
        for seed in range(count)
    ]
