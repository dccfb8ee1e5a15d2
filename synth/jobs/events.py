"""Tell what has happened to a job or a batch, of books too, by server-sent events, from rows alone.

Nothing is recorded for this: what a client has seen stands in the id of its last event, and what is
new is the difference to the rows. So any process can go on where another stopped, after any time.

An id is `status!done.failed.cancelled!D!F!C`; D, F and C list the segments that were seen done,
failed and cancelled, as ranges of indexes in chapters: `0:0-57,59;1:0-3`. That of a batch says the
same of its items, all of them in chapter 0, with one more way to end; that of a batch of books says
of its entries in which state each was seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

MAX_ID_CHARS = 4000  # servers take headers of some 8 kB; what is cut off is told once more
CLOSED = ("done", "failed", "cancelled")  # statuses of segments, in the order of an id's parts
ENDED = ("succeeded", "partial", "failed", "cancelled")  # those of a batch's items
# Those of entries of a batch of books; one that is in none of them has no file yet.
ENTRY_STATES = (
    "importing", "waiting", "sampling", "sampled", "queued", "running", "paused", "succeeded",
    "partial", "failed", "cancelled", "deleted",
)  # fmt: skip
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)

SegmentKey = tuple[int, int]  # chapter, index


class BadEventIdError(ValueError):
    """A `Last-Event-ID` that no event of this job had."""


@dataclass
class Seen:
    """What a client has been told; `kinds`, such as CLOSED, are what is told of its parts."""

    status: str = ""
    counts: tuple[int, ...] = ()
    closed: dict[SegmentKey, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = CLOSED

    def event_id(self, max_chars: int = MAX_ID_CHARS) -> str:
        parts = [self.status, ".".join(map(str, self.counts))]
        left = max_chars
        for kind in self.kinds:
            keys = sorted(key for key, status in self.closed.items() if status == kind)
            parts.append(_write_ranges(keys, left))
            left -= len(parts[-1])
        return "!".join(parts)

    @classmethod
    def from_event_id(
        cls, text: str, *, max_segments: int, kinds: tuple[str, ...] = CLOSED
    ) -> Seen:
        """Return what an id says.

        Raises:
            BadEventIdError: it is none, or names more segments than the job has.
        """
        parts = text.split("!")
        if len(parts) != 2 + len(kinds) or not re.fullmatch(r"[a-z_]*", parts[0]):
            raise BadEventIdError(text)
        counts = tuple(map(_read_number, parts[1].split("."))) if parts[1] else ()
        seen = cls(parts[0], counts, kinds=kinds)
        for kind, part in zip(kinds, parts[2:], strict=True):
            for key in _read_ranges(part, max_segments - len(seen.closed)):
                seen.closed[key] = kind
        return seen


def _write_ranges(keys: list[SegmentKey], max_chars: int) -> str:
    chapters: list[str] = []
    for chapter, group in groupby(keys, key=lambda key: key[0]):
        ranges: list[list[int]] = []
        for _, index in group:
            if ranges and ranges[-1][1] == index - 1:
                ranges[-1][1] = index
            else:
                ranges.append([index, index])
        texts = [f"{low}" if low == high else f"{low}-{high}" for low, high in ranges]
        chapters.append(f"{chapter}:{','.join(texts)}")
    whole = ";".join(chapters)
    if len(whole) <= max_chars:
        return whole
    cut = max(whole.rfind(",", 0, max(0, max_chars)), whole.rfind(";", 0, max(0, max_chars)))
    return whole[: max(0, cut)]


def _read_ranges(text: str, max_keys: int) -> Iterator[SegmentKey]:
    """Yield the keys of ranges; their number is known before one is made."""
    for chapter_text in filter(None, text.split(";")):
        chapter, _, ranges = chapter_text.partition(":")
        for one in ranges.split(","):
            match = _RANGE.fullmatch(one)
            if match is None:
                raise BadEventIdError(text)
            low, high = int(match[1]), int(match[2] or match[1])
            max_keys -= high - low + 1
            if high < low or max_keys < 0:
                raise BadEventIdError(text)
            number = _read_number(chapter)
            yield from ((number, index) for index in range(low, high + 1))


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise BadEventIdError(text)
    return int(text)


RETRY_MILLISECONDS = 2000
MAX_IDS_PER_BATCH = 100  # an id is made from all segments; a replay of a book would take minutes

Mark = tuple[Any, ...]


class ClosedSegment(NamedTuple):
    """A segment that is done, failed or cancelled, or an item that has ended."""

    status: str
    error_code: str = ""
    audio_seconds: float | None = None


def name_segment(key: SegmentKey) -> dict[str, Any]:
    return {"chapter": key[0], "index": key[1]}


@dataclass(frozen=True)
class JobState:
    """A job and its closed segments at one moment; `mark` differs once anything of it does.

    Of a batch the parts are its items: `part` names their events, `name_part` says of which one an
    event is, `open_status` what one is that is not among `segments` any more.
    """

    mark: Mark
    status: str
    is_final: bool
    counts: tuple[int, ...]  # of parts, by the ways in which they end
    shown_state: Mapping[str, Any]
    shown_progress: Mapping[str, Any]
    segments: Mapping[SegmentKey, ClosedSegment]
    part: str = "segment"
    name_part: Callable[[SegmentKey], dict[str, Any]] = name_segment
    open_status: str = "queued"


def news(seen: Seen, job: JobState) -> Iterator[str]:
    """Yield the events that lead from what was seen to the job's state; `seen` is moved along.

    The order is: that it started, its segments, its progress; that it ended comes last.
    """
    steps = list(_steps(seen, job))
    stride = 1 + len(steps) // MAX_IDS_PER_BATCH
    for number, (name, data) in enumerate(steps, start=1):
        _move(seen, job, name, data)
        has_id = number == len(steps) or number % stride == 0
        yield write_event(name, data, seen.event_id() if has_id else None)


def write_event(name: str, data: Mapping[str, Any], event_id: str | None) -> str:
    first = "" if event_id is None else f"id: {event_id}\n"
    return f"{first}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def mark_of(job: Any) -> Mark:
    """Return what differs whenever a part of it ends or the job moves: each writes this row."""
    counts = (job.segments_done, job.segments_failed, job.segments_cancelled)
    return (job.updated_at, job.status, *counts)


def _steps(seen: Seen, job: JobState) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if job.status != seen.status and not job.is_final:
        yield "state", job.shown_state
    again = sorted(key for key in seen.closed if key not in job.segments)
    changed = [(key, ClosedSegment(job.open_status)) for key in again]
    changed += [
        (key, segment)
        for key, segment in sorted(job.segments.items())
        if seen.closed.get(key) != segment.status
    ]
    for key, segment in changed:
        yield job.part, {**job.name_part(key), **segment._asdict()}
    if job.counts != seen.counts:
        yield "progress", job.shown_progress
    if job.status != seen.status and job.is_final:
        yield "state", job.shown_state


def _move(seen: Seen, job: JobState, name: str, data: Mapping[str, Any]) -> None:
    if name == "state":
        seen.status = data["status"]
    elif name == "progress":
        seen.counts = job.counts
    else:
        key = data.get("chapter", 0), data["index"]
        seen.closed[key] = data["status"]
        if data["status"] not in seen.kinds:
            del seen.closed[key]
