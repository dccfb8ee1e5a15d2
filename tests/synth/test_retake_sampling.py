"""Later retakes are sampled more freely, each in one way, and never more strictly than asked."""

from __future__ import annotations

import pytest

from synth.contract import Sampling
from synth.jobs.retake_sampling import sampling_of_retake
from synth.transitions.takes import place_in_series, retake_seed

ASKED = Sampling(seed=7, temperature=0.8, top_p=0.8, top_k=30, max_frames=99)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_first_retakes_differ_by_their_seeds_alone(place: int) -> None:
    assert sampling_of_retake(ASKED, place) == ASKED


@pytest.mark.parametrize(
    ("place", "temperature", "top_p"),
    [(3, 0.9, 0.85), (4, 1.0, 0.9), (6, 1.2, 1.0), (8, 1.4, 1.0), (30, 1.4, 1.0)],
)
def test_later_ones_are_freer_up_to_a_bound(place: int, temperature: float, top_p: float) -> None:
    free = sampling_of_retake(ASKED, place)

    assert (free.temperature, free.top_p) == (temperature, top_p)
    assert (free.seed, free.top_k, free.max_frames) == (7, 30, 99)


def test_what_was_asked_freer_than_the_bound_stays() -> None:
    asked = Sampling(temperature=1.9, top_p=1.0)

    assert sampling_of_retake(asked, 5) == asked


def test_place_is_found_by_the_seed_whatever_order_the_takes_have() -> None:
    seeds = [5, retake_seed(5, 1), retake_seed(5, 2), 123]
    candidates = [{"seed": seed} for seed in seeds]

    places = [place_in_series(seed, candidates) for seed in seeds]
    assert places == [0, 1, 2, 0]
    assert place_in_series(retake_seed(5, 9), candidates) == 9
    assert place_in_series(5, []) == 0
