"""Declare the options of a job, each once: its value and limits, its words, where it is asked for.

The fields of requests and answers, flags, widgets, the order and the table in docs/api.md follow
from here; docs/extending.md says how to add one. Nothing here needs Django: commands that only
talk to a server read it as well.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from synth.contract import HISTORY, SEED, TEMPERATURE, TOP_K, TOP_P, Limits
from synth.formats import (
    FORMATS,
    LOSSY,
    MAX_BIT_RATE,
    MAX_SPEED,
    MIN_BIT_RATE,
    MIN_SPEED,
    SAMPLE_RATES,
    bit_rate_ranges,
    sample_rate_exceptions,
)
from synth.text.pauses import BOOK_PAUSE_NAMES, MAX_PAUSE_MS, PAUSE_NAMES

MAX_JOB_LEXICONS, MAX_JOB_ENTRIES = 50, 500
LOUDNESS = Limits(-36, -6)  # LUFS
RETAKES = Limits(0, 8, whole=True)
RETENTION = Limits(60, 10 * 365 * 24 * 3600, whole=True)  # seconds
_BY_CARD = "Empty: the model's default."


class Value(StrEnum):
    """What an option takes, where that is no number in `Limits` and no choice."""

    SWITCH = "switch"
    LANGUAGE = "language"
    URL = "url"
    MOMENT = "moment"  # or seconds from now
    DURATION = "duration"  # in seconds, or forever
    PAUSES = "pauses"
    NAMES = "names"
    ENTRIES = "entries"  # of a lexicon


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Say all of one option.

    Args:
        name: what requests and answers call it; `column` is its name on the job and in an order.
        value: what it takes: a number in limits, one of some names (with what is stored of each),
            or a value of its own kind.
        default: what holds where it is left out; None is decided later.
        help: its sentence in the API's description and in docs/api.md; `see` is a heading there.
        of_card: whether the checkpoint's card decides where it is left out.
        flag: its sentence on the command line, empty for none; `flag_name` is by its name unless
            given, and `flag_default` goes before `default`.
        group: where the form of a new job has it, `beside` in one row with the option before it;
            `label`, `form_help` and `form_name` are its words there.
        listed: what the page of a job calls it, with `unit` behind a number; empty for not at all.
    """

    name: str
    column: str
    value: Limits | Mapping[str, Any] | Value
    default: Any
    help: str = ""
    see: str = ""
    of_card: bool = False
    flag: str = ""
    flag_name: str = ""
    flag_default: Any = None
    metavar: str | None = None
    group: str
    beside: bool = False
    label: str = ""
    form_help: str = ""
    form_name: str = ""
    choices: tuple[int, ...] = ()  # numbers that the form offers
    listed: str = ""
    unit: str = ""


def option(
    default: Any,
    value: Limits | Mapping[str, Any] | Value,
    group: str,
    name: str = "",
    **words: Any,
) -> Any:
    """Declare an option as a field of `JobOptions`; see `Option`."""
    said = Option(name=name, column="", value=value, default=default, group=group, **words)
    if isinstance(default, (dict, list)):
        return field(default_factory=type(default), metadata={"option": said})
    return field(default=default, metadata={"option": said})


_SPEECH, _FILE, _TAKES, _REST = (
    "Pronunciation", "Audio file", "Takes", "Order, delivery and storage",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Hold the options of a job by the names of its columns."""

    language: str = option(
        "", Value.LANGUAGE, _SPEECH,
        help="Language of the text as a BCP 47 tag; the voice's language if left out.",
        flag="language of the text, such as en or pt-BR", metavar="TAG", listed="language",
        form_help="Language of the text, a tag such as en or pt-BR. Empty: the voice's language.",
    )  # fmt: skip
    normalise: bool = option(
        False, Value.SWITCH, _SPEECH, beside=True, see="Previews",
        help="Spell out numbers, dates and the like, by the rules of the text's language.",
        flag="spell out numbers and the like", label="Spell out numbers", listed="normalised",
        form_help="Numbers, dates and abbreviations are spoken as words in the text's language.",
    )  # fmt: skip
    lexicons: Sequence[str] = option(
        [], Value.NAMES, _SPEECH, see="Lexicons",
        help=f"Ids or names of lexicons, {MAX_JOB_LEXICONS} at most.",
        flag="name or id of a lexicon; once for each", flag_name="lexicon", metavar="NAME",
        listed="lexicons",
        form_help="Names of lexicons, one a line, besides those that always apply. The first one "
        "takes precedence.",
    )  # fmt: skip
    lexicon: Sequence[Mapping[str, Any]] = option(
        [], Value.ENTRIES, _SPEECH,
        help=f"Lexicon entries for this job only, {MAX_JOB_ENTRIES} at most; they apply before "
        "those of lexicons.",
        label="Pronunciations for this job only", listed="lexicon entries",
        form_help="One entry a line, such as Nguyen = Win. A line may begin with [literal], "
        "[regex], [case] or [language de], or with several of them: [regex, case].",
    )  # fmt: skip
    format: str = option(
        "wav", {name: name for name in FORMATS}, "Text and voice", beside=True,
        help="Format of the file.", flag="audio format of the file",
    )  # fmt: skip
    sample_rate: int | None = option(
        None, Limits(SAMPLE_RATES[0], SAMPLE_RATES[-1], whole=True), _FILE, choices=SAMPLE_RATES,
        help=f"Sample rate of the file in Hz: one of {', '.join(map(str, SAMPLE_RATES))}"
        f"{sample_rate_exceptions()}; that of the model if left out.",
        flag="sample rate of the file", metavar="HZ", listed="sample rate", unit=" Hz",
    )  # fmt: skip
    bit_rate: int | None = option(
        None, Limits(MIN_BIT_RATE, MAX_BIT_RATE, whole=True), _FILE, beside=True,
        help=f"Bit rate of the file in bits per second: {bit_rate_ranges()}; refused for the "
        "others.",
        flag="bits per second of the file, such as 64k", metavar="BITS",
        listed="bit rate", unit=" bit/s",
        form_help=f"In bits per second, such as 128000. Only for {', '.join(LOSSY)}.",
    )  # fmt: skip
    loudness: float | None = option(
        None, LOUDNESS, _FILE, help="Target loudness of the whole file, in LUFS.",
        flag=f"loudness of the file in LUFS, {LOUDNESS.ends}", metavar="LUFS",
        listed="loudness", unit=" LUFS",
        form_help=f"Loudness of the whole file, {LOUDNESS.ends} LUFS. Empty: not changed.",
    )  # fmt: skip
    speed: float = option(
        1.0, Limits(MIN_SPEED, MAX_SPEED), _FILE, beside=True,
        help="Tempo of the file; the pitch does not change. A change does not render anything "
        "again.",
        flag=f"tempo of the file, {MIN_SPEED:g} to {MAX_SPEED:g}", listed="speed",
        form_help=f"{MIN_SPEED:g} to {MAX_SPEED:g}; the pitch does not change. Empty: 1.",
    )  # fmt: skip
    pauses: Mapping[str, int] = option(
        {}, Value.PAUSES, _FILE, see="Pauses",
        help=f"Lengths of pauses in ms, 0 to {MAX_PAUSE_MS}: {', '.join(PAUSE_NAMES)}. A change "
        "does not render anything again.",
        flag=f"length of a pause, once for each: {', '.join(BOOK_PAUSE_NAMES)} (of a book)",
        flag_name="pause", metavar="NAME=MS", listed="pauses",
        form_help="In milliseconds, one a line, such as sentence = 400. Names: "
        f"{', '.join(PAUSE_NAMES)}.",
    )  # fmt: skip
    seed: int = option(
        0, SEED, _TAKES,
        help="The same text, voice, seed and model give the same audio; another seed is another "
        "take.",
        flag="another seed gives another take",
        form_help="The same seed, text and voice give the same audio. Another seed gives another "
        "take.",
    )  # fmt: skip
    max_retakes: int | None = option(
        None, RETAKES, _TAKES, beside=True, see="Segments and other takes",
        help="How often a suspicious take is rendered again with another seed, at most.",
        flag=f"how often a suspicious take is rendered again, {RETAKES.ends}", metavar="N",
        label="Retakes", listed="further takes",
        form_help="How often a take that sounds wrong is rendered again, at most: "
        f"{RETAKES.ends}. Empty: the server's setting.",
    )  # fmt: skip
    history: int | None = option(
        None, HISTORY, _TAKES, see="History",
        help="How many earlier segments of the same speaker each segment is rendered after; if "
        "left out, 0 for texts, and for books the number on the model's card.",
        flag=f"earlier segments that each segment is rendered after, {HISTORY.ends}", metavar="N",
        listed="history",
        form_help="How many earlier segments of the same speaker each segment is rendered after, "
        f"{HISTORY.ends}. Empty: 0.",
    )  # fmt: skip
    temperature: float | None = option(
        None, TEMPERATURE, _TAKES, of_card=True, form_help=_BY_CARD,
        help="How even the chances of the candidates are; the model's default if left out.",
    )  # fmt: skip
    top_p: float | None = option(
        None, TOP_P, _TAKES, beside=True, of_card=True, form_help=_BY_CARD,
        help="Share of the probability that the candidates have; 1 leaves none out.",
    )  # fmt: skip
    top_k: int | None = option(
        None, TOP_K, _TAKES, of_card=True, form_help=_BY_CARD,
        help="Number of candidates at most.",
    )  # fmt: skip
    priority: int = option(
        0, {"interactive": 0, "bulk": 10}, _REST, flag_default="bulk",
        help="`bulk` waits behind `interactive`.",
        flag="bulk lets shorter interactive requests go first",
    )  # fmt: skip
    deadline_at: dt.datetime | None = option(  # noqa: RUF009  # it is frozen
        None, Value.MOMENT, _REST, "deadline", beside=True,
        help="A time with its zone, or seconds from now, at most 10 years ahead. At that time the "
        "job stops.",
        flag="stop rendering then: 90s, 30m, 2h, 1d or 2026-01-31T12:00:00Z", metavar="WHEN",
        label="Deadline", form_name="deadline_minutes", listed="deadline",
        form_help="In minutes from now. Text that is not rendered by then is left out. Empty: no "
        "deadline.",
    )  # fmt: skip
    retention_seconds: int | None = option(
        None, Value.DURATION, _REST, "retention",
        help=f"Seconds ({RETENTION.ends}) that the job and its file are kept after the job's end, "
        "or `forever`; TTS_RETENTION_DAYS if left out.",
        flag="keep the job for this long after its end: 12h, 30d or forever", metavar="HOW_LONG",
        label="Keep the job for", form_name="retention_seconds",
    )  # fmt: skip
    webhook_url: str = option(
        "", Value.URL, _REST, "webhook", beside=True, see="Webhooks",
        help="URL that gets a message when the job has ended.",
        flag="URL that gets a message when the job has ended", metavar="URL", listed="webhook",
        form_help="URL that gets a message when the job has ended.",
    )  # fmt: skip
    live: bool = option(
        False, Value.SWITCH, _REST, see="Listening while it is rendered",
        help="Prepare the audio for listening while it is rendered.",
        label="Live audio",
        form_help="Makes the audio available to listeners while it is rendered.",
    )  # fmt: skip


def _declared(one: Any) -> Option:
    said: Option = one.metadata["option"]
    name = said.name or one.name
    return replace(said, name=name, column=one.name, form_name=said.form_name or name)


OPTIONS = {said.name: said for said in map(_declared, fields(JobOptions))}
# What a request calls a column of the job otherwise.
COLUMNS = {one.name: one.column for one in OPTIONS.values() if one.name != one.column}
