"""Latents carry state, pitch, phase and sound; three codebooks are exact, others leave less."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.training.codebooks import (
    NUM_EXACT_BOOKS,
    PHASE_BOOK,
    PITCH_BOOK,
    Book,
    decode_latents,
    encode_clip,
    fit_books,
    k_means,
    phase_book,
    pitch_book,
)
from lab.training.latents import (
    LATENT_DIM,
    PARTS_FIRST,
    PITCH_FIRST,
    STATE_DIM,
    LatentSpace,
    fit_latent_space,
    frame_features,
    pitch_ratio,
)
from lab.training.sound.clips import Clip, aligned_clip
from lab.training.sound.pitch import HIGHEST, LOWEST, NUM_PHASES
from lab.training.speakers import trained_speaker
from tests.lab.training.utterances import PHONES, make_speech

SPEECH = make_speech(40)
CLIPS = [aligned_clip(said, trained_speaker(said.teacher, n)) for n, said in enumerate(SPEECH)]


@dataclass(frozen=True)
class Fitted:
    """Hold five books and the space that they were fitted in."""

    space: LatentSpace
    books: list[Book]


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    space = fit_latent_space(CLIPS, list(range(len(CLIPS))), num_states=32)
    books = fit_books(space, CLIPS, num_books=5, size=HIGHEST + 1, report=lambda line: None)
    return Fitted(space, books)


def test_every_state_has_a_code_and_a_direction_of_its_own(fitted: Fitted) -> None:
    space = fitted.space
    cosines = space.directions @ space.directions.t()
    count = len(space.states)
    assert {state.split()[0] for state in space.states} == {*PHONES, "pau"}
    assert torch.allclose(space.directions.norm(dim=1), torch.ones(count), atol=1e-5)
    assert float((cosines - torch.eye(count)).max()) < 0.9999
    # The commonest states get codes, and others those of an earlier frame.
    few = replace(space, states=("aa 1", "aa 2", "pau 1"), directions=space.directions[:3])
    codes = few.codes_of(["aa 3", "zh 1"]).tolist()
    assert [few.states[code] for code in codes] == ["aa 2", "pau 1"]
    assert len(fit_latent_space(CLIPS, [0] * len(CLIPS), num_states=3).states) == 3


def test_what_a_clip_is_comes_back_from_places_of_its_own(fitted: Fitted) -> None:
    space, clip = fitted.space, CLIPS[3]
    latents = space.latents(clip, start=2)
    assert latents.shape == (clip.num_frames, LATENT_DIM)
    rows = torch.from_numpy(clip.rows)
    assert float((space.rows_of(latents)[:, :25] - rows[:, :25]).abs().mean()) < 0.02
    assert frame_features(clip).shape == (clip.num_frames, 4 * 30)
    nearest = (latents[:, :STATE_DIM] @ space.directions.t()).argmax(1)
    assert torch.equal(nearest, space.codes_of(clip.states))
    angles = torch.atan2(latents[:, PITCH_FIRST + 1], latents[:, PITCH_FIRST])
    ratio = torch.log(torch.from_numpy(clip.pitches[1:]) / LOWEST)
    assert torch.allclose(pitch_ratio(angles), ratio.float(), atol=1e-4)


def test_states_pitches_and_phases_are_searched_and_found_exactly(fitted: Fitted) -> None:
    space, books = fitted.space, fitted.books
    for start, clip in enumerate(CLIPS[:NUM_PHASES]):
        latents, codes = space.latents(clip, start), encode_clip(space, books, clip, start)
        for book in range(NUM_EXACT_BOOKS):
            assert torch.equal(books[book].search(latents), codes[book])
        assert torch.equal(codes[PITCH_BOOK], torch.from_numpy(clip.pitches[1:]))
    every = torch.arange(LOWEST, HIGHEST + 1)
    assert torch.equal(pitch_book(256).search(pitch_book(256).lookup(every)), every)
    phases = torch.arange(NUM_PHASES)
    assert torch.equal(phase_book(256).search(phase_book(256).lookup(phases)), phases)


def test_only_the_phase_s_codes_depend_on_where_phases_begin(fitted: Fitted) -> None:
    first, second = (encode_clip(fitted.space, fitted.books, CLIPS[0], start) for start in (0, 3))
    differs = (first != second).any(1)
    assert differs.tolist() == [book == PHASE_BOOK for book in range(len(first))]
    assert ((second - first)[PHASE_BOOK] % NUM_PHASES == 3).all()


def test_each_book_of_the_sound_leaves_less(fitted: Fitted) -> None:
    space, books = fitted.space, fitted.books

    def parts(clip: Clip) -> tuple[Tensor, list[Tensor]]:
        codes = encode_clip(space, books, clip, 0)
        totals = itertools.accumulate(
            book.lookup(own) for book, own in zip(books, codes, strict=True)
        )
        assert torch.allclose(list(totals)[-1], decode_latents(books, codes), atol=1e-4)
        sound = [0, *range(NUM_EXACT_BOOKS, len(books))]
        found = itertools.accumulate(books[book].lookup(codes[book]) for book in sound)
        return space.latents(clip, 0), list(found)

    left = np.zeros(1 + len(books) - NUM_EXACT_BOOKS)
    for clip in CLIPS:
        latents, totals = parts(clip)
        left += [float((latents - total)[:, PARTS_FIRST:].square().sum()) for total in totals]
    assert list(left) == sorted(left, reverse=True)
    assert left[-1] < 0.8 * left[0]


def test_k_means_finds_directions_that_lie_apart_and_gives_every_row() -> None:
    centres = torch.eye(3).repeat_interleave(20, 0)
    points = centres + 0.05 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    rows = k_means(points, 9, torch.Generator().manual_seed(0))
    assert set(rows.argmax(1).tolist()) == {0, 1, 2}
    assert float(rows.max(1).values.min()) > 0.8
    assert k_means(torch.randn(4, 3), 9, torch.Generator().manual_seed(0)).shape == (9, 3)
