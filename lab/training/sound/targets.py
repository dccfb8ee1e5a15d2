"""Say what the decoder's latents should tell of the sound: phases, pitch and features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.training.sound.acoustics import NUM_FEATURES
from lab.training.sound.synthesis import phases_within
from lab.training.sound.timing import ROWS_PER_FRAME

_MULTIPLES = (1, 2, 3, 4)  # of the phase that are told by cosine and sine
NUM_PHASE_TARGETS = 2 * len(_MULTIPLES)
NUM_TARGETS = NUM_PHASE_TARGETS + 1 + NUM_FEATURES
_MIDDLE_HZ, _PITCH_SCALE = 150.0, 2.0


def latent_targets(rows: Tensor, pitches: Tensor, phase: Tensor, positions: int) -> Tensor:
    """Return the phase's multiples, the pitch and the features of every position of T frames.

    Args:
        rows: [B, 4 T, NUM_FEATURES], scaled to a mean square of 1.
        pitches: [B, T + 1], numbers at the frames' ends; phase: [B], in periods, at the beginning.
        positions: of latents in a frame.

    Returns:
        [B, positions * T, NUM_TARGETS].
    """
    periods, hz = phases_within(pitches, phase, positions)
    angle = 2 * torch.pi * periods
    parts = [f(multiple * angle) for multiple in _MULTIPLES for f in (torch.cos, torch.sin)]
    parts.append(_PITCH_SCALE * torch.log(hz / _MIDDLE_HZ))
    scale = positions / ROWS_PER_FRAME
    features = F.interpolate(rows.transpose(1, 2), scale_factor=scale, mode="linear")
    return torch.cat([torch.stack(parts, -1), features.transpose(1, 2)], -1)
