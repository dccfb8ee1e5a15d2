"""Latents carry the state, the voice and the features of each frame, and can be read back."""

from __future__ import annotations

import pytest
import torch

from lab.training.codebooks import (
    LATENT_DIM,
    PARTS_FIRST,
    STATE_DIM,
    VOICES_FIRST,
    LatentSpace,
    fit_latent_space,
    frame_features,
)
from tests.lab.training.clips import STATES, make_clips

CLIPS = make_clips()


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    """Return a space fitted to the clips."""
    return fit_latent_space(CLIPS, num_states=16)


def test_every_state_has_a_code_and_a_direction_of_its_own(space: LatentSpace) -> None:
    cosines = space.directions @ space.directions.t()
    assert set(space.states) == set(STATES)
    assert torch.allclose(space.directions.norm(dim=1), torch.ones(len(STATES)), atol=1e-5)
    assert float((cosines - torch.eye(len(STATES))).max()) < 0.99


def test_features_come_back_from_the_parts(space: LatentSpace) -> None:
    clip = CLIPS[3]
    parts = space.latents(clip)[:, PARTS_FIRST:]
    back = parts @ torch.linalg.pinv(space.basis) + space.mean
    assert float((back - frame_features(clip)).abs().mean()) < 0.05


def test_the_voice_and_the_state_stand_in_places_of_their_own(space: LatentSpace) -> None:
    clip = CLIPS[2]
    latents = space.latents(clip)

    assert latents.shape == (clip.num_frames, LATENT_DIM)
    assert (latents[:, VOICES_FIRST:PARTS_FIRST].argmax(1) == clip.voice).all()
    nearest = (latents[:, :STATE_DIM] @ space.directions.t()).argmax(1)
    assert torch.equal(nearest, space.codes_of(clip.states))


def test_a_rare_state_falls_back_to_an_earlier_frame_of_its_phone(space: LatentSpace) -> None:
    codes = space.codes_of(["a 3", "q 1"])
    assert space.states[int(codes[0])] == "a 2"
    assert space.states[int(codes[1])] == "_ 1"


def test_only_the_commonest_states_get_codes() -> None:
    space = fit_latent_space([*CLIPS], num_states=3)
    assert len(space.states) == 3
