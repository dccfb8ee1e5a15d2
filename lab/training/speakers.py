"""Say who speaks: a teacher, and how formants, pitch, melody and pace are changed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from lab.training.flite import TEACHERS

SHORTEST, LONGEST = 0.88, 1.15  # rates that are drawn


@dataclass(frozen=True, slots=True)
class Speaker:
    """Hold a speaker; every number is a factor, and 1 leaves the teacher as it is.

    `warp` moves the formants, `pitch` the middle of the pitch, `melody` its distance from the
    middle (in log), and `rate` the length.
    """

    name: str
    teacher: str
    warp: float
    pitch: float
    melody: float
    rate: float

    @property
    def is_teacher(self) -> bool:
        """Return whether nothing is changed."""
        return self.warp == self.pitch == self.melody == self.rate == 1


def draw_speaker(seed: int) -> Speaker:
    """Return the speaker of a seed; the teachers take turns."""
    rng = random.Random(f"speaker {seed}")
    size = rng.uniform(-1, 1)  # a small speaker has high formants, and mostly a high pitch
    return Speaker(
        name=f"speaker {seed}",
        teacher=TEACHERS[seed % len(TEACHERS)],
        warp=round(math.exp(0.15 * size), 3),
        pitch=round(math.exp(0.12 * size + rng.uniform(-0.2, 0.2)), 3),
        melody=round(rng.uniform(0.75, 1.4), 3),
        rate=round(rng.uniform(SHORTEST, LONGEST), 3),
    )


NUM_TRAINED = 6000  # the speakers of smaller seeds may be trained on
OF_EACH = NUM_TRAINED // len(TEACHERS)
HELD_OUT = tuple(draw_speaker(seed) for seed in range(9001, 9021))
DEMO = tuple(
    Speaker(name, teacher, 1, 1, 1, 1)
    for name, teacher in (("Clara", "slt"), ("Henry", "rms"), ("Alec", "awb"))
)


def trained_speaker(teacher: str, number: int) -> Speaker:
    """Return one of a teacher's trained speakers; numbers from `OF_EACH` on begin again."""
    return draw_speaker(number % OF_EACH * len(TEACHERS) + TEACHERS.index(teacher))
