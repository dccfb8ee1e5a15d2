"""Fit the codec's codebooks to known latents by principal axes and k-means; no gradient is needed.

A book looks at seven axes of what is left and a constant: with the constant, the search by
direction that the codec makes also tells large from small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.latents import LATENT_DIM, STATE_DIM, LatentSpace

CODE_DIM = 8
_CONSTANT = 2.0  # against seven axes scaled to a mean square length of 1
_ROUNDS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Book:
    """Hold one quantizer's tensors: numbers = in_weight z + in_bias, z' = out_weight row + bias."""

    rows: Tensor  # [size, CODE_DIM]
    in_weight: Tensor  # [CODE_DIM, LATENT_DIM]
    in_bias: Tensor  # [CODE_DIM]
    out_weight: Tensor  # [LATENT_DIM, CODE_DIM]
    out_bias: Tensor  # [LATENT_DIM]

    def search(self, latents: Tensor) -> Tensor:
        """Return the codes of latents [T, LATENT_DIM], int64 [T]."""
        numbers = latents @ self.in_weight.t() + self.in_bias
        return (F.normalize(numbers, dim=1) @ F.normalize(self.rows, dim=1).t()).argmax(1)

    def lookup(self, codes: Tensor) -> Tensor:
        """Return the latents [T, LATENT_DIM] of codes [T]."""
        return self.rows[codes] @ self.out_weight.t() + self.out_bias


def fit_books(
    space: LatentSpace,
    latents: Tensor,
    states: Tensor,
    *,
    num_books: int,
    size: int,
    report: Callable[[str], None],
) -> list[Book]:
    """Return the semantic book and `num_books` - 1 residual ones of `size` rows.

    Args:
        latents: [T, LATENT_DIM]; states: int64 [T], their semantic codes.
    """
    generator = torch.Generator().manual_seed(0)
    semantic = semantic_book(space, latents, states, size)
    books, left = [semantic], latents - semantic.lookup(states)
    # What the semantic book has not told of the state's own axes is no sound.
    left[:, :STATE_DIM] = 0
    whole = float(left.square().sum(1).mean())
    for number in range(1, num_books):
        book = residual_book(left, size, generator)
        left = left - book.lookup(book.search(left))
        report(
            f"book {number}: {float(left.square().sum(1).mean()) / whole:.3f} of the energy left"
        )
        books.append(book)
    return books


def semantic_book(space: LatentSpace, latents: Tensor, states: Tensor, size: int) -> Book:
    """Return the book whose rows are the states' directions; unused rows point away from all."""
    rows = torch.zeros(size, CODE_DIM)
    rows[:, -1] = -1.0
    rows[: len(space.states)] = space.directions
    in_weight = torch.zeros(CODE_DIM, LATENT_DIM)
    in_weight[:, :STATE_DIM] = torch.eye(STATE_DIM) / 2.8
    inputs = torch.cat([rows[states], torch.ones(len(states), 1)], 1).double()
    fitted = torch.linalg.lstsq(inputs, latents.double()).solution.float()  # [CODE_DIM + 1, D]
    return Book(rows, in_weight, torch.zeros(CODE_DIM), fitted[:-1].t().contiguous(), fitted[-1])


def residual_book(left: Tensor, size: int, generator: torch.Generator) -> Book:
    """Return a book for what is left over, [T, LATENT_DIM]."""
    mean = left.mean(0)
    covariance = (left - mean).t() @ (left - mean) / len(left)
    values, vectors = torch.linalg.eigh(covariance.double())
    axes = vectors.flip(1)[:, : CODE_DIM - 1].float()  # [D, 7]
    length = values.flip(0)[: CODE_DIM - 1].sum().sqrt().float()
    in_weight = torch.cat([axes.t() / length, torch.zeros(1, LATENT_DIM)])
    in_bias = torch.cat([-(mean @ axes) / length, torch.tensor([_CONSTANT])])
    out_weight = torch.cat([axes * length, torch.zeros(LATENT_DIM, 1)], 1)
    rows = k_means(left @ in_weight.t() + in_bias, size, generator)
    return Book(rows, in_weight, in_bias, out_weight, mean)


def k_means(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` centres of points [T, D] under the search by direction."""
    rows = points[torch.randperm(len(points), generator=generator)[:count]].clone()
    if len(rows) < count:
        rows = torch.cat([rows, rows[:1].expand(count - len(rows), -1)])
    directions = F.normalize(points, dim=1)
    for _ in range(_ROUNDS):
        nearest = (directions @ F.normalize(rows, dim=1).t()).argmax(1)
        counts = torch.bincount(nearest, minlength=count)
        sums = torch.zeros_like(rows).index_add_(0, nearest, points)
        used = counts > 0
        rows[used] = sums[used] / counts[used, None]
        empty = int((~used).sum())
        if empty:
            rows[~used] = points[torch.randint(len(points), (empty,), generator=generator)]
    return rows


def encode_latents(books: list[Book], latents: Tensor, states: Tensor | None = None) -> Tensor:
    """Return codes int64 [K, T]; `states` are the semantic ones where they are known."""
    codes = [books[0].search(latents) if states is None else states]
    left = latents - books[0].lookup(codes[0])
    for book in books[1:]:
        codes.append(book.search(left))
        left = left - book.lookup(codes[-1])
    return torch.stack(codes)
