"""Define the codec's latents: what a frame's state, pitch, phase and sound are as 128 numbers.

They are defined and not learnt, so codebooks need no gradient, and encoder, decoder and language
model can be trained in any order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.flite import NUM_CEPSTRA
from lab.training.sound.acoustics import NUM_FEATURES
from lab.training.sound.clips import Clip
from lab.training.sound.pitch import HIGHEST, LOWEST, NUM_PHASES, phase_numbers
from lab.training.sound.timing import PAUSE, ROWS_PER_FRAME

LATENT_DIM = 128
STATE_DIM = 8
# A state's direction, a circle of the pitch, one of the phase, what the books of these two say
# more than the circles (nothing hears it), and then the principal parts of the sound.
PITCH_FIRST, PHASE_FIRST, PITCH_MORE_FIRST, PHASE_MORE_FIRST, PARTS_FIRST = 8, 10, 12, 18, 24
STATE_SCALE, PITCH_SCALE, PHASE_SCALE = 2.8, 2.5, 1.5  # against parts of a mean square of 1
_LOUDNESS_WEIGHT, _STRENGTH_WEIGHT = 0.7, 1.2  # of a row's features beside its other cepstra
_LARGEST_ANGLE = 0.9 * math.pi  # of the highest pitch: the circle does not close
_DISCRIMINANT_PARTS = 48  # principal parts that states are told apart by


@dataclass(frozen=True, eq=False)
class LatentSpace:
    """Hold the fitted maps; every tensor is float32 on the CPU.

    `states` are names, by code; `directions` [states, STATE_DIM] are unit rows. `mean` [F] and
    `basis` [F, parts] map a frame's F features to parts of unit mean square.
    """

    states: tuple[str, ...]
    directions: Tensor
    mean: Tensor
    basis: Tensor

    @cached_property
    def _inverse(self) -> Tensor:
        inverse: Tensor = torch.linalg.pinv(self.basis)
        return inverse

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
            codes.append(known.get(f"{PAUSE} 1", 0) if chosen is None else chosen)
        return torch.tensor(codes, dtype=torch.int64)

    def latents(self, clip: Clip, start: int) -> Tensor:
        """Return a clip's latents, float32 [T, LATENT_DIM], with phases that begin at `start`."""
        parts = (frame_features(clip) - self.mean) @ self.basis
        latents = torch.zeros(len(parts), LATENT_DIM)
        latents[:, :STATE_DIM] = STATE_SCALE * self.directions[self.codes_of(clip.states)]
        circles = (
            (PITCH_FIRST, PITCH_SCALE, pitch_angles(torch.from_numpy(clip.pitches[1:]))),
            (PHASE_FIRST, PHASE_SCALE, phase_angles(clip, start)),
        )
        for first, scale, angle in circles:
            latents[:, first] = scale * angle.cos()
            latents[:, first + 1] = scale * angle.sin()
        latents[:, PARTS_FIRST : PARTS_FIRST + parts.shape[1]] = parts
        return latents

    def rows_of(self, latents: Tensor) -> Tensor:
        """Return the rows of features that latents [T, LATENT_DIM] tell of, [4 T, NUM_FEATURES]."""
        frames: Tensor = latents[:, PARTS_FIRST:] @ self._inverse + self.mean
        rows = frames.view(-1, NUM_FEATURES) / feature_weights()
        rows[:, NUM_CEPSTRA:] = rows[:, NUM_CEPSTRA:].clamp(0, 1)
        return rows


def pitch_angles(numbers: Tensor) -> Tensor:
    """Return the angles at which pitches stand on their circle, by the log of the pitch."""
    return torch.log(numbers.float() / LOWEST) / math.log(HIGHEST / LOWEST) * _LARGEST_ANGLE


def phase_angles(clip: Clip, start: int) -> Tensor:
    """Return the angles of a clip's phase numbers, [T]."""
    return 2 * math.pi * torch.from_numpy(phase_numbers(clip.pitches, start)).float() / NUM_PHASES


def pitch_ratio(angles: Tensor) -> Tensor:
    """Return by how much pitches differ whose places on the circle differ by angles, in log."""
    return angles * (math.log(HIGHEST / LOWEST) / _LARGEST_ANGLE)


def frame_features(clip: Clip) -> Tensor:
    """Return a clip's features by frame, float32 [T, ROWS_PER_FRAME * NUM_FEATURES], weighted."""
    rows = torch.from_numpy(clip.rows) * feature_weights()
    return rows.view(-1, ROWS_PER_FRAME * NUM_FEATURES)


def feature_weights() -> Tensor:
    """Return what a row's features are multiplied by before they are compared, [NUM_FEATURES]."""
    weights = torch.ones(NUM_FEATURES)
    weights[0] = _LOUDNESS_WEIGHT
    weights[NUM_CEPSTRA:] = _STRENGTH_WEIGHT
    return weights


def fit_latent_space(
    clips: Sequence[Clip], speakers: Sequence[int], num_states: int
) -> LatentSpace:
    """Fit the maps to aligned clips.

    Args:
        speakers: a number for each clip, the same for clips of one speaker.
        num_states: the most states that get codes of their own; others share those.
    """
    counts = Counter(state for clip in clips for state in clip.states)
    states = tuple(sorted(name for name, _ in counts.most_common(num_states)))
    frames = torch.cat([frame_features(clip) for clip in clips])
    mean = frames.mean(0)
    covariance = (frames - mean).t() @ (frames - mean) / len(frames)
    values, vectors = torch.linalg.eigh(covariance.double())
    num_parts = LATENT_DIM - PARTS_FIRST
    basis = vectors.flip(1)[:, :num_parts].float()
    basis = basis / (values.sum() / num_parts).sqrt().float()
    parts = ((frames - mean) @ basis)[:, :_DISCRIMINANT_PARTS]
    of_frames = torch.cat(
        [
            torch.full((clip.num_frames,), speaker)
            for clip, speaker in zip(clips, speakers, strict=True)
        ]
    )
    blank = LatentSpace(states, torch.zeros(len(states), STATE_DIM), mean, basis)
    codes = torch.cat([blank.codes_of(clip.states) for clip in clips])
    return LatentSpace(states, _directions(parts, codes, of_frames, len(states)), mean, basis)


def _directions(parts: Tensor, codes: Tensor, speakers: Tensor, num_states: int) -> Tensor:
    """Return a unit row for every state, near where the states sound alike, for any speaker."""
    of_frames = torch.unique(speakers, return_inverse=True)[1]
    count = int(of_frames.max()) + 1
    sums = torch.zeros(count, parts.shape[1]).index_add_(0, of_frames, parts)
    parts = parts - (sums / torch.bincount(of_frames)[:, None])[of_frames]
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
