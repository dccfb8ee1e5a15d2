"""Codebooks hold states exactly, and each residual book leaves less over than the last."""

from __future__ import annotations

import pytest
import torch

from lab.training.codebooks import (
    PARTS_FIRST,
    VOICES_FIRST,
    Book,
    LatentSpace,
    encode_latents,
    fit_books,
    fit_latent_space,
    k_means,
)
from tests.lab.training.clips import make_clips

CLIPS = make_clips(40)


@pytest.fixture(scope="module")
def fitted() -> tuple[LatentSpace, list[Book], torch.Tensor, torch.Tensor]:
    """Return the space, four books, and the latents and states they were fitted to."""
    space = fit_latent_space(CLIPS, num_states=16)
    latents = torch.cat([space.latents(clip) for clip in CLIPS])
    states = torch.cat([space.codes_of(clip.states) for clip in CLIPS])
    books = fit_books(space, latents, states, num_books=4, size=16, report=lambda line: None)
    return space, books, latents, states


def test_the_search_finds_every_state(fitted) -> None:  # type: ignore[no-untyped-def]
    _, books, latents, states = fitted
    assert torch.equal(books[0].search(latents), states)


def test_each_book_leaves_less(fitted) -> None:  # type: ignore[no-untyped-def]
    _, books, latents, states = fitted
    codes = encode_latents(books, latents, states)

    left = [
        float((latents - sum(book.lookup(codes[k]) for k, book in enumerate(books[:count])))
              .square().mean())
        for count in range(1, 5)
    ]  # fmt: skip

    assert left == sorted(left, reverse=True)
    assert left[-1] < 0.3 * left[0]


def test_codes_tell_the_voice(fitted) -> None:  # type: ignore[no-untyped-def]
    _, books, latents, states = fitted
    codes = encode_latents(books, latents, states)

    total = sum(book.lookup(codes[k]) for k, book in enumerate(books))

    answer = total[:, VOICES_FIRST:PARTS_FIRST].argmax(1)
    assert float((answer == latents[:, VOICES_FIRST:PARTS_FIRST].argmax(1)).float().mean()) > 0.95


def test_k_means_finds_directions_that_lie_apart() -> None:
    centres = torch.eye(3).repeat_interleave(20, 0)
    points = centres + 0.05 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))

    rows = k_means(points, 9, torch.Generator().manual_seed(0))

    assert set(rows.argmax(1).tolist()) == {0, 1, 2}
    assert float(rows.max(1).values.min()) > 0.8


def test_fewer_points_than_rows_still_give_every_row() -> None:
    assert k_means(torch.randn(4, 3), 9, torch.Generator().manual_seed(0)).shape == (9, 3)
