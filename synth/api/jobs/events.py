"""Tell what has happened to a job or a batch, of books too, by server-sent events, from rows alone.

Nothing is recorded for this: what a client has seen stands in the id of its last event, and what is
new is the difference to the rows. So any process can go on where another stopped, after any time.

An id is `status!done.failed.cancelled!D!F!C`; D, F and C list the segments that were seen done,
failed and cancelled, as ranges of indexes in chapters: `0:0-57,59;1:0-3`. That of a batch says the
same of its items, all of them in chapter 0, with one more way to end; that of a batch of books says
of its entries in which state each was seen. Entries are to a batch what segments are to a job.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from synth.api.batches.serializers import progress_of as progress_of_batch
from synth.api.batches.serializers import with_figures
from synth.api.jobs.serializers import has_audio, progress_of
from synth.batches.figures import BatchFigures, share_figures
from synth.models import Batch, BatchEntry, RenderJob, Segment
from synth.transitions.batches import WITH_AUDIO
from synth.transitions.book_batches import ENDED_STATES, MISSING, label_of, with_state

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


def read_changed(
    known: Mapping[uuid.UUID, Collection[Mark | None]],
) -> dict[uuid.UUID, Any]:
    """Return the JobState of each job of which not all `known` marks are the present one.

    One query finds them, and one more reads the segments of those that changed. What is no job is
    looked for among batches; what is gone is None.
    """
    rows = RenderJob.objects.filter(pk__in=list(known)).order_by().defer("text")
    jobs = {job.pk: job for job in rows}
    others = {pk: marks for pk, marks in known.items() if pk not in jobs}
    found: dict[uuid.UUID, JobState | None] = read_batches(others) if others else {}
    changed = [pk for pk, job in jobs.items() if set(known[pk]) != {mark_of(job)}]
    closed: dict[uuid.UUID, dict[SegmentKey, ClosedSegment]] = {pk: {} for pk in changed}
    if changed:
        segments = Segment.objects.filter(job__in=changed, status__in=CLOSED).order_by()
        for pk, chapter, index, status, error_code, seconds in segments.values_list(
            "job", "chapter__index", "index", "status", "error_code", "take__audio_seconds"
        ):
            closed[pk][chapter, index] = ClosedSegment(status, error_code, seconds)
    for pk in changed:
        job = jobs[pk]
        audio_url = f"/api/v1/jobs/{pk}/audio" if has_audio(job) else None
        is_final = job.status in job.FINAL
        counts = (job.segments_done, job.segments_failed, job.segments_cancelled)
        found[pk] = JobState(
            mark=mark_of(job),
            status=job.status,
            is_final=is_final,
            counts=counts,
            shown_state={
                "status": job.status,
                "final": is_final,
                "error_code": job.error_code,
                "error_message": job.error_message,
                "audio_url": audio_url,
            },
            shown_progress={
                "progress": progress_of(job),
                "segments_total": job.segments_total,
                "segments_done": counts[0],
                "segments_failed": counts[1],
                "segments_cancelled": counts[2],
                "audio_seconds": round(job.audio_seconds, 3),
            },
            segments=closed[pk],
        )
    return found


_Names = Mapping[SegmentKey, tuple[str, str]]


def read_batches(
    known: Mapping[uuid.UUID, Collection[Mark | None]],
) -> dict[uuid.UUID, JobState | None]:
    """Return the state of each batch of which not all `known` marks are the present one.

    A few queries find those of each kind that changed, and read them. A batch that is gone is None.
    """
    batches = Batch.objects.in_bulk(list(known))
    gone: dict[uuid.UUID, JobState | None] = {pk: None for pk in known if pk not in batches}
    texts = [one for one in batches.values() if one.kind == Batch.Kind.TEXTS]
    changed = [one for one in texts if set(known[one.pk]) != {_mark_of_texts(one)}]
    books = {pk: one for pk, one in batches.items() if one.kind == Batch.Kind.BOOKS}
    return (
        gone
        | (_read_texts(changed) if changed else {})
        | (_read_books(books, known) if books else {})
    )


def _mark_of_texts(batch: Batch) -> Mark:
    """Return what differs whenever an item ends or the batch moves: each writes this row."""
    return (batch.updated_at, batch.status, batch.items_ended)


def _read_texts(batches: Sequence[Batch]) -> dict[uuid.UUID, JobState | None]:
    """Return the states of batches with all their items, in three queries for all of them."""
    ended: dict[uuid.UUID, dict[SegmentKey, ClosedSegment]] = {row.pk: {} for row in batches}
    names: dict[uuid.UUID, dict[SegmentKey, tuple[str, str]]] = {row.pk: {} for row in batches}
    items = RenderJob.objects.filter(batch__in=[row.pk for row in batches]).order_by()
    for batch_id, index, item_id, name, status, error_code, seconds in items.values_list(
        "batch", "item_index", "pk", "custom_id", "status", "error_code", "audio_seconds"
    ):
        if batch_id is None or index is None:
            continue
        names[batch_id][0, index] = (str(item_id), name)
        if status in ENDED:
            ended[batch_id][0, index] = ClosedSegment(status, error_code, round(seconds, 3))
    return {
        batch.pk: _state_of_texts(batch, ended[batch.pk], names[batch.pk])
        for batch in with_figures(batches)
    }


def _state_of_texts(
    batch: Any, ended: Mapping[SegmentKey, ClosedSegment], names: _Names
) -> JobState:
    is_final = batch.status in RenderJob.FINAL
    counts: dict[str, int] = dict(batch.figures.counts)
    results = f"/api/v1/batches/{batch.pk}/results" if batch.status in WITH_AUDIO else None

    def name_item(key: SegmentKey) -> dict[str, Any]:
        job_id, custom_id = names.get(key, (None, None))
        return {"index": key[1], "custom_id": custom_id, "job": job_id}

    return JobState(
        mark=_mark_of_texts(batch),
        status=batch.status,
        is_final=is_final,
        counts=tuple(counts.get(kind, 0) for kind in ENDED),
        shown_state={
            "status": batch.status,
            "final": is_final,
            "error_code": batch.error_code,
            "error_message": batch.error_message,
            "results_url": results,
        },
        shown_progress={
            "progress": progress_of_batch(batch),
            "items_total": sum(counts.values()),
            "counts": counts,
            "audio_seconds": round(batch.figures.audio_seconds, 3),
        },
        segments=ended,
        part="item",
        name_part=name_item,
    )


# What of an entry, its book and its job tells that anything has moved.
_COLUMNS = (
    "batch_id", "index", "filename", "state", "book_id", "book__job_id", "book__error_code",
    "book__job__error_code", "book__job__audio_seconds", "book__job__segments_total",
    "book__job__segments_done", "book__job__segments_failed",
)  # fmt: skip


def _read_books(
    batches: Mapping[uuid.UUID, Batch], known: Mapping[uuid.UUID, Collection[Mark | None]]
) -> dict[uuid.UUID, JobState | None]:
    """Return the states of those batches that changed."""
    entries: dict[uuid.UUID, list[Any]] = defaultdict(list)
    rows = with_state(BatchEntry.objects.filter(batch__in=batches)).order_by("batch", "index")
    for row in rows.values_list(*_COLUMNS, named=True):
        entries[row.batch_id].append(row)
    # What differs whenever the batch or a book of it moves: no one row tells of all.
    marks: dict[uuid.UUID, Mark] = {
        pk: (batch.updated_at, batch.ended_at, hash(tuple(map(tuple, entries[pk]))))
        for pk, batch in batches.items()
    }
    changed = [pk for pk in batches if set(known[pk]) != {marks[pk]}]
    figures = share_figures(changed)
    return {pk: _state_of(batches[pk], marks[pk], entries[pk], figures[pk]) for pk in changed}


def _state_of(batch: Batch, mark: Mark, entries: Sequence[Any], figures: BatchFigures) -> JobState:
    status, is_final = label_of(batch, figures.states), batch.ended_at is not None
    ended = sum(figures.states[state] for state in ENDED_STATES)
    by_place = {(0, entry.index): entry for entry in entries}

    def name_book(key: SegmentKey) -> dict[str, Any]:
        entry = by_place.get(key)
        return {
            "index": key[1],
            "file": entry.filename if entry else None,
            "book": str(entry.book_id) if entry and entry.book_id else None,
            "job": str(entry.book__job_id) if entry and entry.book__job_id else None,
        }

    return JobState(
        mark=mark,
        status=status,
        is_final=is_final,
        counts=(ended, figures.segments_total, figures.segments_done, figures.segments_failed),
        shown_state={
            "status": status,
            "final": is_final,
            "report_url": f"/api/v1/book-batches/{batch.pk}/report" if is_final else None,
        },
        shown_progress={
            "progress": 1.0 if is_final else round(min(0.99, figures.share), 3),
            "books_total": len(entries),
            "books_ended": ended,
            "counts": figures.states,
            "segments_total": figures.segments_total,
            "segments_done": figures.segments_done,
            "segments_failed": figures.segments_failed,
        },
        segments={
            key: _segment_of(entry) for key, entry in by_place.items() if entry.state != MISSING
        },
        part="book",
        name_part=name_book,
        open_status=MISSING,
    )


def _segment_of(entry: Any) -> ClosedSegment:
    started = entry.book__job_id is not None
    code = entry.book__job__error_code if started else entry.book__error_code
    seconds = entry.book__job__audio_seconds or 0.0
    return ClosedSegment(entry.state, code or "", round(seconds, 3))
