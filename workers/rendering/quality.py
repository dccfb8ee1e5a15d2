"""Screen a rendering: tell from its numbers whether it may be bad, and how bad.

What is found is a pure function of the text, the voice's clips, the codes and the audio, so that a
take is judged alike whenever and wherever it is rendered. What only shows beside the other takes of
a job is found in `synth.transitions.comparing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from synth.contract import FinishReason, RenderSpec, SegmentAudio
from workers.rendering.quality_measures import Measured, measure_rendering
from workers.rendering.spoken_length import (
    expected_seconds,
    letters_of,
    most_repeats,
    num_cues,
    pace_of,
)

# Wide enough that of 245 sentences of the demo checkpoint one was flagged, which was cut short.
SHORTEST_SHARE, SPARE_SHORT_SECONDS = 0.5, 0.1  # of what a text should take
LONGEST_SHARE, SPARE_LONG_SECONDS, CUE_SECONDS = 2.2, 0.6, 2.0
SILENT_DBFS = -50.0
MOST_SILENCE = 0.6
MOST_SILENCE_AT_ENDS_SECONDS, MOST_SILENCE_INSIDE_SECONDS = 1.2, 1.5
MOST_CLIPPED = 0.001
MOST_NOISE = 0.35
MOST_LOOP = 0.6
MOST_STUCK_SECONDS = 1.0
_CUT_SHORT_SCORE = 0.4  # of a rendering that was stopped and did not end
_WORST_FACTOR, _FLAG_FACTOR = 0.01, 0.8


@dataclass(frozen=True, slots=True)
class Check:
    """Compare one value with its limit; the name is that of the flag which it raises.

    `is_least` says that the value must be at least the limit, and not at most.
    """

    name: str
    value: float
    limit: float
    is_least: bool = False

    @property
    def is_flagged(self) -> bool:
        """Return whether the value is on the wrong side of its limit."""
        return self.value < self.limit if self.is_least else self.value > self.limit

    @property
    def factor(self) -> float:
        """Return what this leaves of the score, 0.01 to 0.8 for a flagged one and 1 for another."""
        if not self.is_flagged:
            return 1.0
        good, bad = (self.value, self.limit) if self.is_least else (self.limit, self.value)
        return max(_FLAG_FACTOR * (good / bad if bad > 0 else 0.0), _WORST_FACTOR)


@dataclass(frozen=True, slots=True)
class Quality:
    """Hold what the screen found: flags' names, a score from 0 to 1, and the numbers."""

    score: float
    flags: list[str]
    measures: dict[str, Any]


def screen(spec: RenderSpec, rendered: SegmentAudio) -> Quality:
    """Judge a rendering, whose audio is finite, as the speech of its text by its voice.

    The measures are `screen`, a list of name, value and limit for each check, `active_dbfs`, the
    level of what is heard, and `pace`, how long it is by how long it should be.
    """
    measured = measure_rendering(rendered.codes, rendered.audio, rendered.sample_rate)
    frames = max(rendered.codes.shape[1], 1)
    pace = pace_of(spec.references, seconds_per_frame=measured.seconds / frames)
    expected = expected_seconds(spec.text, pace)
    checks = _checks(spec.text, measured, expected)
    flags = [check.name for check in checks if check.is_flagged]
    score = 1.0
    for check in checks:
        score *= check.factor
    if rendered.finish_reason != FinishReason.END:
        flags.append(str(rendered.finish_reason))
        score *= _CUT_SHORT_SCORE
    shown = [
        {"name": one.name, "value": round(one.value, 4), "limit": round(one.limit, 4)}
        for one in checks
    ]
    measures: dict[str, Any] = {
        "screen": shown,
        "active_dbfs": round(measured.active_dbfs, 2),
        "pace": round(measured.seconds / expected, 4),
    }
    return Quality(round(score, 4), flags, measures)


def _checks(text: str, measured: Measured, expected: float) -> list[Check]:
    """Return all checks; cues such as `[laugh]` make room for themselves."""
    room = CUE_SECONDS * num_cues(text)
    shortest = SHORTEST_SHARE * expected - SPARE_SHORT_SECONDS if letters_of(text) else 0.0
    longest = LONGEST_SHARE * expected + SPARE_LONG_SECONDS + room
    inner = MOST_SILENCE_INSIDE_SECONDS + room
    ends = MOST_SILENCE_AT_ENDS_SECONDS + room
    # Words that the text itself repeats may well come out as the same codes again.
    loop = MOST_LOOP if most_repeats(text) < 3 else 1.0
    return [
        Check("too_short", measured.seconds, shortest, is_least=True),
        Check("too_long", measured.seconds, longest),
        Check("silent", -measured.loudest_dbfs, -SILENT_DBFS),
        Check("mostly_silence", measured.silence_share, MOST_SILENCE if not room else 1.0),
        Check("leading_silence", measured.leading_silence, ends),
        Check("trailing_silence", measured.trailing_silence, ends),
        Check("long_pause", measured.inner_silence, inner),
        Check("clipping", measured.clipped_share, MOST_CLIPPED),
        Check("noise", measured.noise_share, MOST_NOISE),
        Check("repetition", measured.loop_share, loop),
        Check("stuck", measured.stuck_seconds, MOST_STUCK_SECONDS),
    ]
