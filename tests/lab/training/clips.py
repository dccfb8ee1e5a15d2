"""Make speech-like clips without a synthesiser: a tone whose colour tells its state."""

from __future__ import annotations

import numpy as np

from lab.training.acoustics import FLOOR, NUM_BANDS, NUM_FEATURES, ROW_SAMPLES, ROWS_PER_FRAME
from lab.training.shards import Clip

STATES = ("_ 1", "a 1", "a 2", "s 1")


def make_clip(seed: int = 0, frames: int = 8, voice: int = 0, text: str = "A word.") -> Clip:
    """Return a clip whose states follow each other at random and shape its features."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(STATES), size=frames)
    rows = np.repeat(chosen, ROWS_PER_FRAME)
    features = np.full((len(rows), NUM_FEATURES), np.log10(FLOOR))
    bands = np.arange(NUM_BANDS)
    for row, state in enumerate(rows):
        if state:
            peak = 10 * state + 3 * voice
            features[row, :NUM_BANDS] = -2 - 0.1 * np.abs(bands - peak)
        features[row, -2:] = float(state in (1, 2))
    features[:, :NUM_BANDS] += rng.normal(0, 0.05, (len(rows), NUM_BANDS))
    wave = rng.normal(0, 1000, frames * ROWS_PER_FRAME * ROW_SAMPLES)
    return Clip(
        text=text,
        voice=voice,
        features=features.astype(np.float16),
        states=tuple(STATES[state] for state in chosen),
        letters=np.linspace(0, len(text) - 1, frames).astype(np.float32),
        wave=wave.astype(np.int16),
    )


def make_clips(count: int = 24) -> list[Clip]:
    """Return clips of four voices and several lengths."""
    return [
        make_clip(seed, frames=6 + seed % 5, voice=seed % 4, text=f"Word {seed}.")
        for seed in range(count)
    ]
