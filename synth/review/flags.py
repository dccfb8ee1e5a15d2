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
        "The take is too short for its text.",
        "It lasts {value:.1f} s; at least {limit:.1f} s are needed.",
    ),
    "too_long": Flag(
        "The take is too long for its text.",
        "It lasts {value:.1f} s; usually at most {limit:.1f} s.",
    ),
    "frame_limit": Flag("The take was cut off at the frame limit before the model ended it."),
    "context_full": Flag("The take was cut off because the model's context was full."),
    "silent": Flag("The take is silent."),
    "mostly_silence": Flag(
        "Most of the take is silence.",
        "{value:.0%} of it is silent; at most {limit:.0%} is allowed.",
    ),
    "leading_silence": Flag(
        "The take begins with a long silence.",
        "The silence lasts {value:.1f} s; the limit is {limit:.1f} s.",
    ),
    "trailing_silence": Flag(
        "The take ends with a long silence.",
        "The silence lasts {value:.1f} s; the limit is {limit:.1f} s.",
    ),
    "long_pause": Flag(
        "The take has a long pause inside.",
        "The pause lasts {value:.1f} s; the limit is {limit:.1f} s.",
    ),
    "clipping": Flag("The take clips at full scale.", "{value:.2%} of its samples are clipped."),
    "noise": Flag(
        "The take sounds like noise rather than a voice.",
        "Its noise value is {value:.2f}; the limit is {limit:.2f}.",
    ),
    "repetition": Flag(
        "The take repeats the same sound over and over.",
        "{value:.0%} of it is alike; the limit is {limit:.0%}.",
    ),
    "stuck": Flag(
        "The take holds one sound for too long.",
        "The sound lasts {value:.1f} s; the limit is {limit:.1f} s.",
    ),
    "level": Flag("The take is much louder or quieter than this speaker's other takes."),
    "rhythm": Flag("The take is much faster or slower than this speaker's other takes."),
    "asr_mismatch": Flag(
        "The words heard in the take differ from its text.",
        "{value:.0%} of the words are wrong; the limit is {limit:.0%}.",
    ),
}


def sentence_of(name: str, measures: Iterable[Mapping[str, Any]]) -> str:
    """Return what a flag says of a take, with the take's own number where one was measured."""
    flag = FLAGS.get(name)
    if flag is None:  # of another version of the program
        return f"The quality check found: {name}."
    measured = next((one for one in measures if one["name"] == name), None)
    if measured is None or not flag.numbers:
        return flag.sentence
    numbers = flag.numbers.format(value=measured["value"], limit=measured["limit"])
    return f"{flag.sentence} {numbers}"
