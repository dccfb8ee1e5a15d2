"""Read the options of a job from a command line."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from synth.formats import FORMATS
from synth.text.pauses import BOOK_PAUSE_NAMES

_VOICE = re.compile(r"([0-9]{1,4})=(.+)", re.DOTALL)
_PAUSE = re.compile(r"([a-z]+)=([0-9]{1,5})")
_DURATION = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,6})?)([smhd]?)")
_BIT_RATE = re.compile(r"([0-9]{1,6})(k?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
# What is sent as it was given, where it was given at all.
_PLAIN = (
    "language", "sample_rate", "bit_rate", "loudness", "speed", "max_retakes", "deadline",
    "retention", "webhook",
)  # fmt: skip


def add_job_arguments(parser: ArgumentParser, *, needs_voice: bool = True) -> None:
    """Take who speaks and the options of a job; without `needs_voice` the command asks for it."""
    parser.add_argument(
        "--voice",
        action="append",
        required=needs_voice,
        type=speaker_voice,
        metavar="[N=]NAME",
        help="name or id of a voice; N=VOICE for the text's <|speaker:N|>, once for each",
    )
    parser.add_argument("--format", choices=tuple(FORMATS), default="wav")
    parser.add_argument("--sample-rate", type=int, metavar="HZ", help="audio format of the file")
    parser.add_argument(
        "--bit-rate", type=bit_rate, metavar="BITS", help="bits per second of the file, such as 64k"
    )
    parser.add_argument(
        "--loudness", type=float, metavar="LUFS", help="loudness of the file in LUFS, -36 to -6"
    )
    parser.add_argument("--speed", type=float, help="tempo of the file, 0.25 to 4")
    parser.add_argument(
        "--language", metavar="TAG", help="language of the text, such as en or pt-BR"
    )
    parser.add_argument(
        "--pause",
        action="append",
        default=[],
        type=pause,
        metavar="NAME=MS",
        help=f"length of a pause, once for each: {', '.join(BOOK_PAUSE_NAMES)} (of a book)",
    )
    parser.add_argument("--normalise", action="store_true", help="spell out numbers and the like")
    parser.add_argument(
        "--lexicon",
        action="append",
        default=[],
        metavar="NAME",
        help="name or id of a lexicon; once for each",
    )
    parser.add_argument(
        "--max-retakes",
        type=int,
        metavar="N",
        help="how often a suspicious take is rendered again, 0 to 8",
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed gives another take")
    parser.add_argument(
        "--priority",
        choices=("interactive", "bulk"),
        default="bulk",
        help="bulk lets shorter interactive requests go first",
    )
    parser.add_argument(
        "--deadline",
        type=moment_or_duration,
        metavar="WHEN",
        help="stop rendering then: 90s, 30m, 2h, 1d or 2026-01-31T12:00:00Z",
    )
    parser.add_argument(
        "--retention",
        type=retention,
        metavar="HOW_LONG",
        help="keep the job for this long after its end: 12h, 30d or forever",
    )
    parser.add_argument(
        "--webhook", metavar="URL", help="URL that gets a message when the job has ended"
    )


def voices_of(chosen: Namespace) -> str | dict[int, str]:
    """Return the voice, or the voices by speaker where several were named.

    Raises:
        ValueError: two voices for one speaker.
    """
    voices: dict[int, str] = {}
    for speaker, name in chosen.voice:
        if speaker in voices:
            raise ValueError(
                f"speaker {speaker} has two voices, {voices[speaker]} and {name}; give one"
            )
        voices[speaker] = name
    return voices[0] if list(voices) == [0] else voices


def options_of(chosen: Namespace) -> dict[str, Any]:
    """Return the options that were given, as `client_types.JobOptions` names them."""
    found: dict[str, Any] = {
        "format": chosen.format,
        "seed": chosen.seed,
        "priority": chosen.priority,
    }
    given = {name: getattr(chosen, name) for name in _PLAIN}
    found |= {name: value for name, value in given.items() if value is not None}
    if chosen.pause:
        found["pauses"] = dict(chosen.pause)
    if chosen.normalise:
        found["normalise"] = True
    if chosen.lexicon:
        found["lexicons"] = chosen.lexicon
    return found


def speaker_voice(text: str) -> tuple[int, str]:
    """Return a speaker's number and the name of its voice; without a number it is speaker 0."""
    match = _VOICE.fullmatch(text)
    return (int(match[1]), match[2]) if match else (0, text)


def pause(text: str) -> tuple[str, int]:
    """Return a pause's name and its length in ms."""
    match = _PAUSE.fullmatch(text)
    if match is None or match[1] not in BOOK_PAUSE_NAMES:
        raise ArgumentTypeError(
            f"{text!r} is not a pause; expected one of {', '.join(BOOK_PAUSE_NAMES)} with its "
            "length in ms, such as sentence=200"
        )
    return match[1], int(match[2])


def bit_rate(text: str) -> int:
    """Return bits per second; 64k is 64000."""
    match = _BIT_RATE.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a bit rate; expected for example 64k or 64000")
    return int(match[1]) * (1000 if match[2] else 1)


def moment_or_duration(text: str) -> str | float:
    """Return a duration in seconds; anything else as it is, for the server to read."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match else text


def retention(text: str) -> int | str:
    """Return whole seconds, or `forever`."""
    match = _DURATION.fullmatch(text)
    if match is None and text != "forever":
        raise ArgumentTypeError(
            f"{text!r} is not a duration; expected for example 12h, 30d or forever"
        )
    return round(float(match[1]) * _SECONDS[match[2]]) if match else text
