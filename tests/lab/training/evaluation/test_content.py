"""Warped cepstra tell what is said from how it is said."""

from __future__ import annotations

import numpy as np
import pytest

from lab.training.evaluation.content import Floats, cepstra, distances, log_mel

RATE = 44100


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


def test_a_slower_copy_is_nearer_than_another_sequence() -> None:
    rng = np.random.default_rng(1)
    said, other = rng.normal(size=(2, 20, 6))

    costs = distances(said, [other, np.repeat(said, 2, axis=0)])

    assert costs[1] < 1e-6 < costs[0]


def test_cepstra_do_not_hear_the_level() -> None:
    rng = np.random.default_rng(2)
    wave = rng.normal(0, 0.3, RATE) * np.repeat(rng.uniform(0.5, 1, 10), RATE // 10)

    assert np.allclose(cepstra(log_mel(wave)), cepstra(log_mel(wave * 0.7)), atol=0.05)


def test_one_row_of_spectrum_is_one_hop() -> None:
    assert log_mel(np.zeros(RATE)).shape == (RATE // 512 + 1, 80)
