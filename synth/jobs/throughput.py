"""Measure how fast and how steadily segments were rendered, by the moments at which they ended."""

from __future__ import annotations

import math
import statistics
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

WITHIN = 0.3  # of itself: where a time is probably right within that, it is given
# So much longer than usual, and at least so long, is a pause, which parts what was measured.
_LONG, BREAK_SECONDS = 8.0, 30.0
_STALL, _STALL_SECONDS = 3.0, 5.0
_TOGETHER_SECONDS = 0.1
_LEAST_STEPS, _LEAST_GAPS = 5, 2
_SURE = 2.0  # standard deviations that WITHIN has to hold


class Ended(NamedTuple):
    """Say when a segment had its take, of how many characters, and when its job had begun."""

    at: float  # seconds; all moments of one call have the same origin
    chars: int
    begun: float
    job: uuid.UUID | None = None
    is_reused: bool = False


class Estimate(NamedTuple):
    """A time and its standard deviation, in seconds."""

    seconds: float
    error: float

    def plus(self, other: Estimate) -> Estimate:
        """Return the time of both, one after the other."""
        return Estimate(self.seconds + other.seconds, math.hypot(self.error, other.error))

    def if_sure(self) -> float | None:
        """Return the time if it is probably right within WITHIN of itself."""
        return self.seconds if _SURE * self.error <= WITHIN * self.seconds else None


@dataclass(frozen=True, slots=True)
class Throughput:
    """Hold how fast all workers together render, and how steadily.

    Segments that end together are one step; `spread` is the standard deviation of the time that
    one of `steps` took, in means.
    """

    chars_per_second: float
    chars_per_segment: float
    chars_per_step: float
    steps: int
    spread: float
    last_at: float

    @classmethod
    def of(cls, ended: Iterable[Ended]) -> Self | None:
        """Return the throughput of the latest steady part; None where there is none."""
        every = steps_of(ended)
        steps = _after_pause(every)
        # Many segments that began together end together: what lies between such ends has to be
        # in the measured part, more than once.
        least = _LEAST_GAPS * max(
            (step.seconds for step in every if step.seconds <= BREAK_SECONDS), default=0.0
        )
        while len(steps) >= _LEAST_STEPS and sum(step.seconds for step in steps) >= least:
            middle = len(steps) // 2
            early, late = _rate(steps[:middle]), _rate(steps[middle:])
            is_steady = max(early, late) <= (1 + WITHIN) * min(early, late)
            if is_steady or len(steps) < 2 * _LEAST_STEPS:
                return cls._measured(steps)
            steps = steps[middle:]
        return None

    @classmethod
    def _measured(cls, steps: Sequence[_Step]) -> Self | None:
        rate, number = _rate(steps), len(steps)
        if not 0 < rate < math.inf:
            return None
        chars, segments = sum(step.chars for step in steps), sum(step.segments for step in steps)
        off = sum((step.seconds - step.chars / rate) ** 2 for step in steps)
        spread = math.sqrt(off / (number - 1)) * number / (chars / rate)
        return cls(rate, chars / segments, chars / number, number, spread, steps[-1].at)

    def time_for(self, chars: float) -> Estimate:
        if chars <= 0:
            return Estimate(0.0, 0.0)
        seconds, ahead = chars / self.chars_per_second, chars / self.chars_per_step
        error = seconds * self.spread * math.sqrt(1 / self.steps + 1 / ahead)
        # Of what ends together nobody knows whether the last of it needs a whole step of its own.
        last = self.seconds_per_step / 2 * (1 - self.chars_per_segment / self.chars_per_step)
        return Estimate(seconds, math.hypot(error, last))

    @property
    def seconds_per_step(self) -> float:
        return self.chars_per_step / self.chars_per_second

    def is_stalled(self, now: float, since: float) -> bool:
        """Say whether nothing has ended for much longer than usual, since a job began, too."""
        usual = self.seconds_per_step * (1 + self.spread)
        return now - max(self.last_at, since) > max(_STALL_SECONDS, _STALL * usual)


@dataclass(slots=True)
class _Step:
    """What ended at one moment, and the time since the one before it or since its job began."""

    at: float
    seconds: float
    chars: int
    segments: int = 1


def steps_of(ended: Iterable[Ended]) -> list[_Step]:
    """Return the steps, in order, in which segments ended."""
    steps: list[_Step] = []
    for one in sorted(ended, key=lambda one: one.at):
        if steps and one.at - steps[-1].at < _TOGETHER_SECONDS:
            steps[-1].chars += one.chars
            steps[-1].segments += 1
            continue
        before = max(steps[-1].at if steps else -math.inf, one.begun)
        steps.append(_Step(one.at, max(0.0, one.at - before), one.chars))
    return steps


def _after_pause(steps: Sequence[_Step]) -> Sequence[_Step]:
    """Return what ended after the last pause, without its first step, whose start is not known."""
    if not steps:
        return steps
    limit = max(BREAK_SECONDS, _LONG * statistics.median(step.seconds for step in steps))
    pauses = [place for place, step in enumerate(steps) if step.seconds > limit]
    return steps[(pauses[-1] if pauses else 0) + 1 :]


def _rate(steps: Sequence[_Step]) -> float:
    seconds = sum(step.seconds for step in steps)
    return sum(step.chars for step in steps) / seconds if seconds > 0 else math.inf
