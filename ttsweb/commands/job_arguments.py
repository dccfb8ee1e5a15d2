"""Read from a command line the options of a job, a book's casting, and what of a plan is spoken."""

from __future__ import annotations

import re
import textwrap
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from synth.books.rules import (
    CHARS_PER_SECOND,
    AltTexts,
    Notes,
    Rules,
    SkipReason,
    SpeakerNames,
    Tables,
)
from synth.contract import SEED, Limits
from synth.jobs.options import OPTIONS, Option, Value
from synth.text.pauses import BOOK_PAUSE_NAMES
from ttsweb.commands.base import UsageError, add_all, argument, switch
from ttsweb.commands.terminal import one_line

_VOICE = re.compile(r"([0-9]{1,4})=(.+)", re.DOTALL)
_PAUSE = re.compile(r"([a-z]+)=([0-9]{1,5})")
_DURATION = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,6})?)([smhd]?)")
_BIT_RATE = re.compile(r"([0-9]{1,6})(k?)")
Name = TypeVar("Name", int, str)
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
    if isinstance(one.value, Limits):
        return bit_rate if one.name == "bit_rate" else int if one.value.whole else float
    readers: dict[Any, Callable[[str], Any]] = {
        Value.PAUSES: pause, Value.MOMENT: moment_or_duration, Value.DURATION: retention,
    }  # fmt: skip
    return readers.get(one.value, str)


def voices_of(chosen: Namespace) -> str | dict[int, str]:
    """Return the voice, or the voices by speaker where several were named.

    Raises:
        UsageError: two voices for one speaker.
    """
    voices = _by_name(chosen.voice, "speaker ")
    return voices[0] if list(voices) == [0] else voices


def speakers_of(chosen: Namespace) -> dict[str, Any]:
    """Return the voices as an upload has them; errors as `voices_of`."""
    voices = voices_of(chosen)
    return {"voice": voices} if isinstance(voices, str) else {"voices": voices}


def options_of(chosen: Namespace) -> dict[str, Any]:
    """Return the options that were given, as `client_types.JobOptions` names them."""
    flags = {name: one.flag_name or name for name, one in OPTIONS.items() if one.flag}
    found = {name: getattr(chosen, flag) for name, flag in flags.items()}
    found["pauses"] = dict(found["pauses"])
    return {name: value for name, value in found.items() if value not in (None, [], {})}


def speaker_voice(text: str) -> tuple[int, str]:
    match = _VOICE.fullmatch(text)
    return (int(match[1]), match[2]) if match else (0, text)


def pause(text: str) -> tuple[str, int]:
    match = _PAUSE.fullmatch(text)
    if match is None or match[1] not in BOOK_PAUSE_NAMES:
        raise ArgumentTypeError(
            f"{text!r} is not a pause; expected one of {', '.join(BOOK_PAUSE_NAMES)} with its "
            "length in ms, such as sentence=200"
        )
    return match[1], int(match[2])


def bit_rate(text: str) -> int:
    match = _BIT_RATE.fullmatch(text)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a bit rate; expected for example 64k or 64000")
    return int(match[1]) * (1000 if match[2] else 1)


def moment_or_duration(text: str) -> str | float:
    """Return a duration in seconds; anything else as it is, for the server to read."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _SECONDS[match[2]] if match else text


def retention(text: str) -> int | str:
    match = _DURATION.fullmatch(text)
    if match is None and text != "forever":
        raise ArgumentTypeError(
            f"{text!r} is not a duration; expected for example 12h, 30d or forever"
        )
    return round(float(match[1]) * _SECONDS[match[2]]) if match else text


_CASTING = ("dialogue_voice", "character", "language_voice", "opening_credits", "closing_credits")


def add_casting_arguments(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("voices of a book, and its credits")
    group.add_argument(
        "--dialogue-voice",
        metavar="NAME",
        help="voice of dialogue in prose; dialogue is found by quotation marks and dashes",
    )
    several: dict[str, Any] = {"action": "append", "default": [], "type": named_voice}
    group.add_argument(
        "--character",
        metavar="NAME=VOICE",
        help="voice of a character in a play, or of the text's <|speaker:NAME|>; once for each",
        **several,
    )
    group.add_argument(
        "--language-voice",
        metavar="TAG=VOICE",
        help="voice of the paragraphs in a language, such as fr=Colette; once for each language",
        **several,
    )
    for place in ("opening", "closing"):
        group.add_argument(
            f"--{place}-credits",
            metavar="TEXT",
            help="spoken as a chapter; {title}, {subtitle}, {authors}, {narrators}, {publisher} "
            "and {year} are replaced by the book's metadata",
        )


def casting_options_of(chosen: Namespace) -> dict[str, Any]:
    """Return `casting` and the credits as an upload has them, as far as they were given.

    Raises:
        UsageError: two voices for one character or language.
    """
    casting: dict[str, Any] = {}
    if chosen.dialogue_voice is not None:
        casting |= {"dialogue": "detect", "dialogue_voice": chosen.dialogue_voice}
    if chosen.character:
        casting["characters"] = _by_name(chosen.character)
    if chosen.language_voice:
        casting["languages"] = _by_name(chosen.language_voice)
    given = {
        "casting": casting or None,
        "opening_credits": chosen.opening_credits,
        "closing_credits": chosen.closing_credits,
    }
    return {name: value for name, value in given.items() if value is not None}


def casting_flags_of(chosen: Namespace) -> list[str]:
    given = (name for name in _CASTING if getattr(chosen, name) not in (None, []))
    return [f"--{name.replace('_', '-')}" for name in given]


def named_voice(text: str) -> tuple[str, str]:
    """Return a name and its voice; the last `=` parts them, for names may hold one."""
    name, mark, voice = text.rpartition("=")
    if not mark or not name.strip() or not voice.strip():
        raise ArgumentTypeError(f"{text!r} names no voice; expected for example ALICE=Ada")
    return name.strip(), voice.strip()


def _by_name(given: Sequence[tuple[Name, str]], what: str = "") -> dict[Name, str]:
    found: dict[Name, str] = {}
    for name, voice in given:
        if name in found:
            raise UsageError(f"{what}{name} has two voices, {found[name]} and {voice}; give one")
        found[name] = voice
    return found


PLAN_RULES: dict[str, type[Notes | Tables | AltTexts | SpeakerNames]] = {
    "notes": Notes,
    "tables": Tables,
    "alt_texts": AltTexts,
    "speaker_names": SpeakerNames,
}


def add_plan_arguments(parser: ArgumentParser) -> None:
    plan = parser.add_argument_group(
        "the plan of a book, which is made on this machine without a server"
    )
    printing = "print chapters, and what is spoken or skipped and why; render nothing"
    usual = f"{CHARS_PER_SECOND:g} if left out"
    rate = f"with --plan, characters that the voice speaks per second; {usual}"
    rules = (
        argument(
            f"--plan-{name.replace('_', '-')}",
            choices=[str(one) for one in choices],
            help=f"with --plan; {getattr(Rules(), name)} if left out",
        )
        for name, choices in PLAN_RULES.items()
    )
    pace = argument("--chars-per-second", type=float, metavar="N", help=rate)
    add_all(plan, (switch("--plan", printing), *rules, pace))
    add_all(parser, SWITCHES)


MOST_ROWS = 8  # of each reason that a person is shown
_WIDTH = 80
_PLACE = re.compile(r"(?P<chapter>[\w.]+?)(?::(?P<block>\d{1,6}))?\Z")


_WHAT = "a reason such as hidden, a chapter's number, or CHAPTER:BLOCK, as the plan lists them"
SWITCHES = tuple(
    argument(f"--{name}", action="append", default=[], metavar="WHAT", help=help_text)
    for name, help_text in (
        ("include", f"in a book, speak what the plan leaves out: {_WHAT}; may be repeated"),
        ("exclude", "in a book, leave out what the plan speaks; same names as for --include"),
    )
)


def edits_of(chosen: Namespace, chapters: Sequence[str]) -> list[dict[str, Any]]:
    """Return the edits of a plan that the arguments ask for.

    Args:
        chapters: the ids of the plan's chapters, in their order.

    Raises:
        UsageError: an argument names nothing of this plan.
    """
    return [
        {"edit": edit, **_named(what, chapters)}
        for edit in ("include", "exclude")
        for what in getattr(chosen, edit)
    ]


def _named(what: str, chapters: Sequence[str]) -> dict[str, Any]:
    if what.replace("-", "_") in set(SkipReason):
        return {"reason": what.replace("-", "_")}
    found = _PLACE.match(what)
    name = found["chapter"] if found else ""
    if name.isdecimal() and 1 <= int(name) <= len(chapters):
        name = chapters[int(name) - 1]
    if found is None or name not in chapters:
        raise UsageError(
            f"{what!r} is not a part of this plan; name a reason, a chapter from 1 to "
            f"{len(chapters)}, or CHAPTER:BLOCK"
        )
    block = {} if found["block"] is None else {"block": int(found["block"])}
    return {"chapter": name, **block}


def left_out_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a plan leaves out, by reason: how it begins, and what --include takes for it."""
    numbers = {chapter["id"]: chapter["index"] + 1 for chapter in plan["chapters"]}
    rows: dict[str, list[str]] = defaultdict(list)
    for chapter in plan["chapters"]:
        if not chapter["included"]:
            rows[chapter["reason"] or "excluded"].append(
                f"{numbers[chapter['id']]}: {chapter['beginning'] or chapter['title']}"
            )
    for row in plan["skipped"]:
        if not row["included"]:
            place = f"{numbers[row['chapter']]}:{row['block']}"
            mark = "" if row["can_be_included"] else " (no words to speak)"
            rows[row["reason"]].append(f"{place}: {row['text'] or row['kind']}{mark}")
    for reason, count in plan["completeness"]["skipped"].items():
        line = f"  {count:>8}  {reason}: {SkipReason(reason).sentence}"
        yield from textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 12)
        for line in rows[reason][:MOST_ROWS]:
            yield one_line(f"            {line}", _WIDTH)
        if len(rows[reason]) > MOST_ROWS:
            yield f"            and {len(rows[reason]) - MOST_ROWS} more; --json lists them"
    for loss in plan["completeness"]["missing"]:
        line = f"   MISSING  {loss['path']}: {loss['why']}"
        yield from textwrap.wrap(line, _WIDTH, subsequent_indent=" " * 12)
