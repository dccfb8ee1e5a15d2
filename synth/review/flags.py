"""Say in a sentence what each flag of the quality screen means, with the numbers that raised it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

FAILED, FLAGGED, SHORT = "failed", "flagged", "short"
REASONS = (FAILED, FLAGGED, SHORT)


class Flag(NamedTuple):
    """What a flag says of a take, and how its value and its limit are written; `{}` is a number."""

    sentence: str
    numbers: str = ""


FLAGS: dict[str, Flag] = {
    "too_short": Flag(
        "It is too short for its text.", "{value:.1f} s; at least {limit:.1f} s are needed."
    ),
    "too_long": Flag(
        "It is too long for its text.", "{value:.1f} s; {limit:.1f} s at most are usual."
    ),
    "frame_limit": Flag("It was stopped before the model said the end."),
    "context_full": Flag("It was stopped because the model has no more room."),
    "silent": Flag("Nothing is heard."),
    "mostly_silence": Flag("Most of it is silence.", "{value:.0%} of it; {limit:.0%} at most."),
    "leading_silence": Flag("It begins with a long silence.", "{value:.1f} s; {limit:.1f} s."),
    "trailing_silence": Flag("It ends with a long silence.", "{value:.1f} s; {limit:.1f} s."),
    "long_pause": Flag("It has a long pause inside.", "{value:.1f} s; {limit:.1f} s at most."),
    "clipping": Flag("It is cut at full scale.", "{value:.2%} of the samples."),
    "noise": Flag("It is noise rather than a voice.", "{value:.2f}; {limit:.2f} at most."),
    "repetition": Flag("It says the same over and over.", "{value:.0%} alike; {limit:.0%} at most"),
    "stuck": Flag("It holds one sound.", "{value:.1f} s; {limit:.1f} s at most."),
    "level": Flag("It is much louder or softer than this speaker's other takes."),
    "rhythm": Flag("It is much faster or slower than this speaker's other takes."),
    "asr_mismatch": Flag(
        "What was heard in it is not its text.", "{value:.0%} is wrong; {limit:.0%} at most."
    ),
}


def sentence_of(name: str, measures: Iterable[Mapping[str, Any]]) -> str:
    """Return what a flag says of a take, with the take's own number where one was measured."""
    flag = FLAGS.get(name)
    if flag is None:  # of another version of the program
        return f"The screen found: {name}."
    measured = next((one for one in measures if one["name"] == name), None)
    if measured is None or not flag.numbers:
        return flag.sentence
    numbers = flag.numbers.format(value=measured["value"], limit=measured["limit"])
    return f"{flag.sentence} {numbers}"
