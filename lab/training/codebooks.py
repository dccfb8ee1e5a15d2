"""Fit the codec's codebooks to known latents by principal axes and k-means; no gradient is needed.

A book looks at seven axes of what is left and a constant: with the constant, the search by
direction that the codec makes also tells large from small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.acoustics import NUM_FEATURES, ROWS_PER_FRAME
from lab.training.espeak import VOICES
from lab.training.shards import Clip

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


LATENT_DIM = 128
STATE_DIM = 8
STATES_FIRST, VOICES_FIRST = 0, STATE_DIM
PARTS_FIRST = STATE_DIM + len(VOICES)
_STATE_SCALE, _VOICE_SCALE = 2.8, 3.0  # against parts that have a mean square of 1
_VOICING_SCALE = 1.5  # one voicing weighs like 1.5 decades of a band
_DISCRIMINANT_PARTS = 48  # principal parts that states are told apart by


@dataclass(frozen=True, slots=True, eq=False)
class LatentSpace:
    """Hold the fitted maps; every tensor is float32 on the CPU.

    `states` are names, by code; `directions` [states, STATE_DIM] are unit rows. `mean` [F] and
    `basis` [F, parts] map a frame's F features to parts of unit mean square.
    """

    states: tuple[str, ...]
    directions: Tensor
    mean: Tensor
    basis: Tensor

    def codes_of(self, states: Sequence[str]) -> Tensor:
        """Return the semantic code of each state, int64 [T]; an unknown one is taken as silence.

        A state that was too rare for a code of its own is taken as an earlier frame of its phone.
        """
        known = {name: index for index, name in enumerate(self.states)}
        codes = []
        for name in states:
            phone, _, index = name.rpartition(" ")
            chosen = known.get(name)
            for earlier in range(int(index) - 1, 0, -1):
                chosen = known.get(f"{phone} {earlier}") if chosen is None else chosen
            codes.append(known.get("_ 1", 0) if chosen is None else chosen)
        return torch.tensor(codes, dtype=torch.int64)

    def latents(self, clip: Clip) -> Tensor:
        """Return a clip's latents, float32 [T, LATENT_DIM]."""
        frames = frame_features(clip)
        parts = (frames - self.mean) @ self.basis
        latents = torch.zeros(len(frames), LATENT_DIM)
        latents[:, :STATE_DIM] = _STATE_SCALE * self.directions[self.codes_of(clip.states)]
        latents[:, VOICES_FIRST + clip.voice] = _VOICE_SCALE
        latents[:, PARTS_FIRST : PARTS_FIRST + parts.shape[1]] = parts
        return latents


def frame_features(clip: Clip) -> Tensor:
    """Return a clip's features by frame, float32 [T, ROWS_PER_FRAME * NUM_FEATURES], weighted."""
    rows = torch.from_numpy(clip.features.astype("float32"))
    rows = rows * feature_weights()
    return rows.view(-1, ROWS_PER_FRAME * NUM_FEATURES)


def feature_weights() -> Tensor:
    """Return what a row's features are multiplied by before they are compared, [NUM_FEATURES]."""
    weights = torch.ones(NUM_FEATURES)
    weights[-2:] = _VOICING_SCALE
    return weights


def fit_latent_space(clips: Sequence[Clip], num_states: int) -> LatentSpace:
    """Fit the maps to aligned clips; at most `num_states` of the states get codes of their own."""
    counts = Counter(state for clip in clips for state in clip.states)
    states = tuple(sorted(name for name, _ in counts.most_common(num_states)))
    frames = torch.cat([frame_features(clip) for clip in clips])
    mean = frames.mean(0)
    covariance = (frames - mean).t() @ (frames - mean) / len(frames)
    values, vectors = torch.linalg.eigh(covariance.double())
    num_parts = min(LATENT_DIM - PARTS_FIRST, frames.shape[1])
    basis = vectors.flip(1)[:, :num_parts].float()
    basis = basis / (values.sum() / num_parts).sqrt().float()
    parts = ((frames - mean) @ basis)[:, :_DISCRIMINANT_PARTS]
    voices = torch.cat([torch.full((clip.num_frames,), clip.voice) for clip in clips])
    blank = LatentSpace(states, torch.zeros(len(states), STATE_DIM), mean, basis)
    codes = torch.cat([blank.codes_of(clip.states) for clip in clips])
    return LatentSpace(states, _directions(parts, codes, voices, len(states)), mean, basis)


def _directions(parts: Tensor, codes: Tensor, voices: Tensor, num_states: int) -> Tensor:
    """Return a unit row for every state, near where the states sound alike, for any voice."""
    for voice in voices.unique().tolist():  # type: ignore[no-untyped-call]
        parts = torch.where(
            (voices == voice)[:, None], parts - parts[voices == voice].mean(0), parts
        )
    counts = torch.bincount(codes, minlength=num_states).clamp(min=1)
    means = torch.zeros(num_states, parts.shape[1]).index_add_(0, codes, parts) / counts[:, None]
    spread = parts - means[codes]
    within = (spread.t() @ spread / len(spread)).double()
    within += 1e-3 * within.diagonal().mean() * torch.eye(len(within), dtype=torch.float64)
    values, vectors = torch.linalg.eigh(within)
    whiten = (vectors / values.sqrt()).float()
    centred = means @ whiten
    # Each state counts by the root of its frequency, so that silence does not rule the axes.
    weights = counts.float().sqrt()[:, None]
    axes = torch.linalg.svd(centred * weights, full_matrices=False)[2][: STATE_DIM - 1]
    placed = centred @ axes.t()
    placed = placed / placed.square().sum(1).mean().sqrt()
    placed = F.pad(placed, (0, STATE_DIM - 1 - placed.shape[1]))  # fewer states than axes
    # The constant keeps states in the middle apart from each other, which a direction alone cannot.
    return F.normalize(F.pad(placed, (0, 1), value=0.7), dim=1)
