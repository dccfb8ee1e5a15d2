"""Latents carry state, voice and features; codebooks hold states exactly, and leave ever less."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from lab.training.codebooks import (
    LATENT_DIM,
    PARTS_FIRST,
    STATE_DIM,
    VOICES_FIRST,
    Book,
    LatentSpace,
    encode_latents,
    fit_books,
    fit_latent_space,
    frame_features,
    k_means,
)
from tests.lab.training.clips import STATES, make_clips

CLIPS = make_clips(40)


@pytest.fixture(scope="module")
def space() -> LatentSpace:
    return fit_latent_space(CLIPS, num_states=16)


@dataclass(frozen=True)
class Fitted:
    """Hold four books, and the latents and states they were fitted to."""

    latents: Tensor
    states: Tensor
    books: list[Book]


@pytest.fixture(scope="module")
def fitted(space: LatentSpace) -> Fitted:
    latents = torch.cat([space.latents(clip) for clip in CLIPS])
    states = torch.cat([space.codes_of(clip.states) for clip in CLIPS])
    books = fit_books(space, latents, states, num_books=4, size=16, report=lambda line: None)
    return Fitted(latents, states, books)


def test_every_state_has_a_code_and_a_direction_of_its_own(space: LatentSpace) -> None:
    cosines = space.directions @ space.directions.t()
    assert set(space.states) == set(STATES)
    assert torch.allclose(space.directions.norm(dim=1), torch.ones(len(STATES)), atol=1e-5)
    assert float((cosines - torch.eye(len(STATES))).max()) < 0.99
    # The commonest states get codes, and others those of an earlier frame.
    codes = space.codes_of(["a 3", "q 1"]).tolist()
    assert [space.states[code] for code in codes] == ["a 2", "_ 1"]
    assert len(fit_latent_space(CLIPS, num_states=3).states) == 3


def test_features_voice_and_state_come_back_from_places_of_their_own(space: LatentSpace) -> None:
    for clip in CLIPS[2:4]:
        latents = space.latents(clip)
        assert latents.shape == (clip.num_frames, LATENT_DIM)
        back = latents[:, PARTS_FIRST:] @ torch.linalg.pinv(space.basis) + space.mean
        assert float((back - frame_features(clip)).abs().mean()) < 0.05
        assert (latents[:, VOICES_FIRST:PARTS_FIRST].argmax(1) == clip.voice).all()
        nearest = (latents[:, :STATE_DIM] @ space.directions.t()).argmax(1)
        assert torch.equal(nearest, space.codes_of(clip.states))


def test_the_search_finds_every_state_and_each_book_leaves_less(fitted: Fitted) -> None:
    books, latents = fitted.books, fitted.latents
    assert torch.equal(books[0].search(latents), fitted.states)

    codes = encode_latents(books, latents, fitted.states)
    totals = list(itertools.accumulate(book.lookup(codes[k]) for k, book in enumerate(books)))
    left = [float((latents - total).square().mean()) for total in totals]
    assert left == sorted(left, reverse=True)
    assert left[-1] < 0.3 * left[0]
    # Codes tell the voice.
    named, voices = (each[:, VOICES_FIRST:PARTS_FIRST].argmax(1) for each in (totals[-1], latents))
    assert float((named == voices).float().mean()) > 0.95


def test_k_means_finds_directions_that_lie_apart_and_gives_every_row() -> None:
    centres = torch.eye(3).repeat_interleave(20, 0)
    points = centres + 0.05 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    rows = k_means(points, 9, torch.Generator().manual_seed(0))
    assert set(rows.argmax(1).tolist()) == {0, 1, 2}
    assert float(rows.max(1).values.min()) > 0.8
    assert k_means(torch.randn(4, 3), 9, torch.Generator().manual_seed(0)).shape == (9, 3)
