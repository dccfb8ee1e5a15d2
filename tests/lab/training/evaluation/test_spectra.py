"""Warping finds the sentence that was said, whatever its pace and level."""

from __future__ import annotations

import numpy as np
import pytest

from lab.training.evaluation.spectra import (
    HOP,
    RATE,
    Floats,
    align,
    cepstra,
    distances,
    find_speech,
    log_mel,
)


def plain_cost(said: Floats, candidate: Floats) -> float:
    """Return the warping cost by the textbook's double loop."""
    best = np.full((len(said) + 1, len(candidate) + 1), np.inf)
    best[0, 0] = 0
    for i in range(1, len(said) + 1):
        for j in range(1, len(candidate) + 1):
            before = min(best[i - 1, j - 1], best[i - 1, j], best[i, j - 1])
            best[i, j] = before + np.linalg.norm(said[i - 1] - candidate[j - 1])
    return float(best[-1, -1] / (len(said) + len(candidate)))


def test_costs_are_those_of_the_plain_algorithm() -> None:
    rng = np.random.default_rng(0)
    said = rng.normal(size=(13, 4))
    candidates = [rng.normal(size=(length, 4)) for length in (5, 13, 20)]
    found = distances(said, candidates)
    assert found == pytest.approx([plain_cost(said, candidate) for candidate in candidates])
    said, other = rng.normal(size=(2, 20, 6))  # a slower copy is nearer than another sequence
    costs = distances(said, [other, np.repeat(said, 2, axis=0)])
    assert costs[1] < 1e-6 < costs[0]


def test_the_way_through_a_slower_copy_pairs_each_frame_with_its_copies() -> None:
    said = np.random.default_rng(1).normal(size=(9, 5))
    path = align(said, np.repeat(said, 3, axis=0))
    assert [tuple(pair) for pair in path] == [(index // 3, index) for index in range(27)]


def test_cepstra_do_not_hear_the_level_and_leave_out_pauses() -> None:
    rng = np.random.default_rng(2)
    wave = rng.normal(0, 0.3, RATE) * np.repeat(rng.uniform(0.5, 1, 10), RATE // 10)
    assert np.allclose(cepstra(log_mel(wave)), cepstra(log_mel(wave * 0.7)), atol=0.05)
    with_pause = log_mel(np.concatenate([wave, np.zeros(RATE), wave]))
    assert with_pause.shape == (3 * RATE // HOP + 1, 40)
    assert find_speech(with_pause).sum() == pytest.approx(2 * RATE / HOP, abs=5)


def test_a_tone_lies_in_the_band_of_its_frequency() -> None:
    times = np.arange(RATE) / RATE
    loudest = [
        int(log_mel(np.sin(2 * np.pi * hz * times))[50].argmax()) for hz in (150, 1000, 4000, 7000)
    ]
    assert loudest == sorted(set(loudest))
    assert loudest[1] == pytest.approx(14, abs=1)  # of 40 bands up to 7600 Hz, alike on mel's scale
