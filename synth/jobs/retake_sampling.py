"""Sample later retakes more freely: what a model says for certain, another seed does not change."""

from __future__ import annotations

from dataclasses import replace

from synth.contract import TOP_P, Sampling

USUAL_RETAKES = 2  # with nothing but other seeds
STEPS = 6
TEMPERATURE_STEP, MOST_TEMPERATURE = 0.1, 1.4
TOP_P_STEP = 0.05


def sampling_of_retake(sampling: Sampling, place: int) -> Sampling:
    """Return how retake number `place` of a segment's series is sampled; 0 is its first take.

    From the third one on each samples more freely, up to the eighth: a model that ends early with
    `top_p` or more of its certainty would do so with every seed.
    """
    step = min(max(0, place - USUAL_RETAKES), STEPS)
    if not step:
        return sampling
    temperature = round(sampling.temperature + step * TEMPERATURE_STEP, 4)
    return replace(
        sampling,
        temperature=max(sampling.temperature, min(temperature, MOST_TEMPERATURE)),
        top_p=min(TOP_P.high, round(sampling.top_p + step * TOP_P_STEP, 4)),
    )
