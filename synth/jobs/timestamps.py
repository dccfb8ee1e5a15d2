"""Say when each segment of a finished job is heard: as rows, and as subtitles in SRT and WebVTT.

Times are counted in samples of the file. Pure functions besides `read_spoken`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import regex

from synth.models import ExportCues, JobVoice, Segment
from synth.text.segments import SPEAKER_TAG

LINE_COLUMNS = 42  # what subtitles of broadcasters keep to; a wide character takes two
MAX_LINES = 2
_WIDE = ("W", "F")
_NO_WIDTH = ("Mn", "Me", "Cf")
_BLANKS = regex.compile(r"\s+")
_CONTROL = regex.compile(r"[\p{Cc}\p{Cs}\uFFFE\uFFFF]")
_CLUSTER = regex.compile(r"\X")
# What a player takes for markup: SRT has no way to escape it, so a blank without width goes in.
_SRT_MARKUP = regex.compile(r"(?<=<)(?=[/a-zA-Z])|(?<=\{)(?=\\)|(?<=--)(?=>)")
_HIDDEN_BREAK = "\u200b"


@dataclass(frozen=True, slots=True)
class Spoken:
    """A segment in its file: from sample `start` up to `end`, without the pause that follows."""

    chapter: int
    index: int
    start: int
    end: int
    text: str
    speaker: int
    voice: str | None


class Line(NamedTuple):
    """What is shown from `start` up to `end`, in milliseconds: one or two lines of text."""

    start: int
    end: int
    lines: list[str]
    voice: str | None


def read_spoken(found: ExportCues) -> list[Spoken]:
    """Return the segments that a file holds, in order."""
    places = {pk: (start, end) for pk, start, end in found.cues}
    job_id = found.export.job_id
    names = dict(JobVoice.objects.filter(job=job_id).values_list("speaker", "version__voice__name"))
    rows = Segment.objects.filter(job=job_id).order_by("chapter__index", "index")
    values = rows.values_list("pk", "chapter__index", "index", "text", "speaker")
    return [
        Spoken(chapter, index, *places[pk], text, speaker, names.get(speaker))
        for pk, chapter, index, text, speaker in values.iterator(chunk_size=1000)
        if pk in places
    ]


def to_srt(spoken: Sequence[Spoken], sample_rate: int) -> str:
    """Return the segments as SubRip subtitles; an empty text has none."""
    blocks = []
    for number, line in enumerate(_lines(spoken, sample_rate), start=1):
        shown = "\n".join(_SRT_MARKUP.sub(_HIDDEN_BREAK, text) for text in line.lines)
        span = f"{_clock(line.start, ',')} --> {_clock(line.end, ',')}"
        blocks.append(f"{number}\n{span}\n{shown}\n")
    return "\n".join(blocks)


def to_vtt(spoken: Sequence[Spoken], sample_rate: int) -> str:
    """Return the segments as WebVTT; where several voices speak, each cue names its own."""
    has_voices = len({one.voice for one in spoken}) > 1
    blocks = ["WEBVTT\n"]
    for number, line in enumerate(_lines(spoken, sample_rate), start=1):
        shown = "\n".join(map(_escape_vtt, line.lines))
        if has_voices and line.voice:
            shown = f"<v {_escape_vtt(_one_line(line.voice))}>{shown}</v>"
        span = f"{_clock(line.start, '.')} --> {_clock(line.end, '.')}"
        blocks.append(f"{number}\n{span}\n{shown}\n")
    return "\n".join(blocks)


def _lines(spoken: Sequence[Spoken], sample_rate: int) -> Iterator[Line]:
    """Yield what is shown, in order, none of it over another.

    A long segment is cut into several, which share its time by their characters.
    """
    shown_until = 0
    for one in spoken:
        wrapped = _wrap(SPEAKER_TAG.sub("", one.text))
        parts = [wrapped[at : at + MAX_LINES] for at in range(0, len(wrapped), MAX_LINES)]
        start = max(shown_until, _milliseconds(one.start, sample_rate))
        end = max(_milliseconds(one.end, sample_rate), start + 1)
        if not parts:
            continue
        if len(parts) > end - start:  # not a millisecond for each: speech is never that fast
            parts = [wrapped]
        weights = [sum(map(len, part)) for part in parts]
        before = 0
        for part, weight in zip(parts, weights, strict=True):
            first = start + (end - start) * before // sum(weights)
            before += weight
            last = start + (end - start) * before // sum(weights)
            yield Line(first, max(last, first + 1), part, one.voice)
        shown_until = end


def _wrap(text: str) -> list[str]:
    """Return a text as lines of at most LINE_COLUMNS columns, cut between words where it can be."""
    lines, line = [], ""
    for word in _one_line(text).split(" "):
        for piece in _pieces(word):
            joined = f"{line} {piece}" if line and piece is not None else line + piece
            if _columns(joined) <= LINE_COLUMNS:
                line = joined
            else:
                lines.append(line)
                line = piece
    return [*lines, line] if line else lines


def _pieces(word: str) -> list[str]:
    """Return a word, or its parts where no line has room for it, as in Chinese or an address."""
    if _columns(word) <= LINE_COLUMNS:
        return [word]
    parts, part = [], ""
    for cluster in _CLUSTER.findall(word):
        if part and _columns(part + cluster) > LINE_COLUMNS:
            parts.append(part)
            part = ""
        part += cluster
    return [*parts, part]


def _one_line(text: str) -> str:
    """Return a text without breaks, runs of blanks and characters that no file may hold."""
    return str(_CONTROL.sub("", _BLANKS.sub(" ", text))).strip()


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.category(one) in _NO_WIDTH
        else 2 if unicodedata.east_asian_width(one) in _WIDE
        else 1
        for one in text
    )  # fmt: skip


def _escape_vtt(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _milliseconds(sample: int, sample_rate: int) -> int:
    """Return the nearest millisecond, halves up, so that equal samples give equal times."""
    return (2 * 1000 * sample + sample_rate) // (2 * sample_rate)


def _clock(milliseconds: int, mark: str) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{mark}{rest:03d}"
