"""Read the options of a job from a command line."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from typing import Any

from synth.contract import SEED, Limits
from synth.options.job_options import OPTIONS, Option, Value
from synth.text.pauses import BOOK_PAUSE_NAMES

_VOICE = re.compile(r"([0-9]{1,4})=(.+)", re.DOTALL)
_PAUSE = re.compile(r"([a-z]+)=([0-9]{1,5})")
_DURATION = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,6})?)([smhd]?)")
_BIT_RATE = re.compile(r"([0-9]{1,6})(k?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


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
    for one in OPTIONS.values():
        if one.flag:
            _add_flag(parser, one)


def _add_flag(parser: ArgumentParser, one: Option) -> None:
    name = one.flag_name or one.name
    more: dict[str, Any] = {"dest": name, "help": one.flag}
    if isinstance(one.value, Mapping):
        more |= {"choices": tuple(one.value), "default": one.flag_default or one.default}
    elif one.value == Value.SWITCH:
        more |= {"action": "store_true", "default": None}
    else:
        more |= {"type": _reader(one), "metavar": one.metavar}
        if one.value in (Value.PAUSES, Value.NAMES):
            more |= {"action": "append", "default": []}
        elif one.value == SEED:
            more["default"] = one.default
    parser.add_argument(f"--{name.replace('_', '-')}", **more)


def _reader(one: Option) -> Callable[[str], Any]:
    """Return what reads an option's word."""
    if isinstance(one.value, Limits):
        return bit_rate if one.name == "bit_rate" else int if one.value.whole else float
    readers: dict[Any, Callable[[str], Any]] = {
        Value.PAUSES: pause, Value.MOMENT: moment_or_duration, Value.DURATION: retention,
    }  # fmt: skip
    return readers.get(one.value, str)


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
    flags = {name: one.flag_name or name for name, one in OPTIONS.items() if one.flag}
    found = {name: getattr(chosen, flag) for name, flag in flags.items()}
    found["pauses"] = dict(found["pauses"])
    return {name: value for name, value in found.items() if value not in (None, [], {})}


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
