"""Fit the codec's codebooks to known latents by principal axes and k-means; no gradient is needed.

Book 0 holds the states, book 1 pitches and book 2 phases, each exactly. The others share what is
left of the sound: a book looks at seven axes of it and a constant, with which the search by
direction that the codec makes also tells large from small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.latents import (
    LATENT_DIM,
    PARTS_FIRST,
    PHASE_FIRST,
    PHASE_MORE_FIRST,
    PHASE_SCALE,
    PITCH_FIRST,
    PITCH_MORE_FIRST,
    PITCH_SCALE,
    STATE_DIM,
    STATE_SCALE,
    LatentSpace,
    pitch_angles,
)
from lab.training.sound.clips import Clip
from lab.training.sound.pitch import HIGHEST, LOWEST, NUM_PHASES, phase_numbers

CODE_DIM = 8
NUM_EXACT_BOOKS = 3
PITCH_BOOK, PHASE_BOOK = 1, 2
_CONSTANT = 2.0  # against seven axes scaled to a mean square length of 1
_ROUNDS = 20
_PITCH_CYCLES = (16, 8, 4)  # phase goes on by sixteenths of the pitch's number


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
    clips: Sequence[Clip],
    *,
    num_books: int,
    size: int,
    report: Callable[[str], None],
) -> list[Book]:
    """Return the books of states, pitches and phases, and `num_books` - 3 fitted ones.

    Args:
        size: rows of each book; at least `HIGHEST` + 1, so that every pitch has one.
    """
    latents = torch.cat([space.latents(clip, start=0) for clip in clips])
    states = torch.cat([space.codes_of(clip.states) for clip in clips])
    exact = [semantic_book(space, latents, states, size), pitch_book(size), phase_book(size)]
    return add_books(space, clips, exact, num_books=num_books, report=report)


def add_books(
    space: LatentSpace,
    clips: Sequence[Clip],
    books: Sequence[Book],
    *,
    num_books: int,
    report: Callable[[str], None],
) -> list[Book]:
    """Return `num_books`: the given ones, and then books that are fitted to what those leave."""
    generator = torch.Generator().manual_seed(0)
    size = len(books[0].rows)
    left = torch.cat([space.latents(clip, start=0) for clip in clips])
    states = torch.cat([space.codes_of(clip.states) for clip in clips])
    left = left - books[0].lookup(states)
    left[:, :PARTS_FIRST] = 0
    whole = float(left.square().sum(1).mean())
    found = list(books)
    for number in range(NUM_EXACT_BOOKS, num_books):
        if number == len(found):
            found.append(residual_book(left, size, generator))
        book = found[number]
        left = left - book.lookup(book.search(left))
        left[:, :PARTS_FIRST] = 0
        share = float(left.square().sum(1).mean()) / whole
        report(f"quantizer: book {number} leaves {share:.3f} of the energy")
    return found


def semantic_book(space: LatentSpace, latents: Tensor, states: Tensor, size: int) -> Book:
    """Return the book whose rows are the states' directions; unused rows point away from all."""
    rows = torch.zeros(size, CODE_DIM)
    rows[:, -1] = -1.0
    rows[: len(space.states)] = space.directions
    in_weight = torch.zeros(CODE_DIM, LATENT_DIM)
    in_weight[:, :STATE_DIM] = torch.eye(STATE_DIM) / STATE_SCALE
    wanted = latents.clone()
    wanted[:, STATE_DIM:PARTS_FIRST] = 0  # pitch and phase have books of their own
    inputs = torch.cat([rows[states], torch.ones(len(states), 1)], 1).double()
    fitted = torch.linalg.lstsq(inputs, wanted.double()).solution.float()  # [CODE_DIM + 1, D]
    return Book(rows, in_weight, torch.zeros(CODE_DIM), fitted[:-1].t().contiguous(), fitted[-1])


def pitch_book(size: int) -> Book:
    """Return the book whose code is the pitch's number.

    A row tells the pitch by an angle, and its remainders that the phase depends on by three more.
    """
    numbers = torch.arange(size).clamp(LOWEST, HIGHEST)
    angles = [pitch_angles(numbers)]
    angles += [2 * math.pi * numbers / cycle for cycle in _PITCH_CYCLES]
    rows = _on_circles(angles)
    unused = (torch.arange(size) < LOWEST) | (torch.arange(size) > HIGHEST)
    rows[unused, :2] = -1.0
    return _circle_book(rows, PITCH_FIRST, PITCH_MORE_FIRST, PITCH_SCALE)


def phase_book(size: int) -> Book:
    """Return the book whose code is the phase's number; its rows tell multiples of the phase."""
    angle = 2 * math.pi * (torch.arange(size) % NUM_PHASES) / NUM_PHASES
    rows = _on_circles([multiple * angle for multiple in range(1, CODE_DIM // 2 + 1)])
    rows[NUM_PHASES:] = 0
    rows[NUM_PHASES:, -1] = 2.0  # away from every phase
    return _circle_book(rows, PHASE_FIRST, PHASE_MORE_FIRST, PHASE_SCALE)


def _on_circles(angles: Sequence[Tensor]) -> Tensor:
    """Return cosine and sine of each of several angles [n], side by side."""
    return torch.stack([f(angle) for angle in angles for f in (torch.cos, torch.sin)], 1)


def _circle_book(rows: Tensor, first: int, more_first: int, scale: float) -> Book:
    """Return a book that is searched by its first circle and gives the others' places too."""
    in_weight = torch.zeros(CODE_DIM, LATENT_DIM)
    out_weight = torch.zeros(LATENT_DIM, CODE_DIM)
    for index in range(2):
        in_weight[index, first + index] = 1 / scale
        out_weight[first + index, index] = scale
    for index in range(2, CODE_DIM):
        out_weight[more_first + index - 2, index] = 1.0
    return Book(rows, in_weight, torch.zeros(CODE_DIM), out_weight, torch.zeros(LATENT_DIM))


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


def encode_clip(space: LatentSpace, books: Sequence[Book], clip: Clip, start: int) -> Tensor:
    """Return a clip's codes, int64 [K, T], with phases that begin at `start`, 0 to 7."""
    states = space.codes_of(clip.states)
    phases = torch.from_numpy(phase_numbers(clip.pitches, start))
    codes = [states, torch.from_numpy(clip.pitches[1:]), phases]
    left = space.latents(clip, start) - books[0].lookup(states)
    left[:, :PARTS_FIRST] = 0
    for book in books[NUM_EXACT_BOOKS:]:
        codes.append(book.search(left))
        left = left - book.lookup(codes[-1])
    return torch.stack(codes)


def decode_latents(books: Sequence[Book], codes: Tensor) -> Tensor:
    """Return the latents that codes [K, T] stand for, [T, LATENT_DIM]."""
    return torch.stack([book.lookup(own) for book, own in zip(books, codes, strict=True)]).sum(0)
