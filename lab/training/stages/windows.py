"""Cut short windows out of coded clips, with all that says what they sound like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lab.training.sound.pitch import SIXTEENTHS, Numbers, phases_at_ends
from lab.training.sound.timing import ROWS_PER_FRAME


class Windows(NamedTuple):
    """Hold windows of F frames, each with a frame before them that leads in.

    `codes` int64 [B, K, context + F]; `rows` [B, 4 (F + 1) + 1, features], the first one before
    the frame that leads in; `pitches` [B, F + 2], numbers at the ends of F + 1 frames; `phase`
    [B], in periods, where they begin.
    """

    codes: Tensor
    rows: Tensor
    pitches: Tensor
    phase: Tensor


def cut_window(
    codes: Tensor,
    rows: Tensor,
    pitches: Numbers,
    start: int,
    first: int,
    *,
    frames: int,
    context: int,
) -> Windows:
    """Return one window without the axis B, from frame `first` on.

    Before a clip's beginning its first frame is repeated.

    Args:
        codes, rows, pitches: of the whole clip, with phases that begin at `start`.
    """
    wanted = np.clip(np.arange(first - context, first + frames), 0, None)
    row = np.arange((first - 1) * ROWS_PER_FRAME - 1, (first + frames) * ROWS_PER_FRAME)
    end = np.arange(first - 1, first + frames + 1)
    phases = phases_at_ends(pitches, start)
    begin = int(phases[first - 1]) if first else int(phases[0] - 2 * pitches[0]) % SIXTEENTHS
    return Windows(
        codes=codes[:, torch.from_numpy(wanted)],
        rows=rows[torch.from_numpy(np.clip(row, 0, None))],
        pitches=torch.from_numpy(pitches[np.clip(end, 0, None)]).float(),
        phase=torch.tensor(begin / SIXTEENTHS),
    )


def stack_windows(windows: Sequence[Windows], device: torch.device) -> Windows:
    """Return windows of one size as a batch."""
    return Windows(*(torch.stack(parts).to(device) for parts in zip(*windows, strict=True)))
