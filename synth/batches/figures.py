"""Count how far batches of books are, and sum them up in a report at their end."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import Aggregate, Count, F, FloatField, Max, Min, Q, QuerySet, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, NullIf
from django.dispatch import receiver

from synth.jobs.eta import chars_left, eta_of_chars, real_time_factor
from synth.jobs.queue import lane_of
from synth.models import Batch, BatchEntry, BookFile, Export, RenderJob, Segment, Take
from synth.signals import job_approved
from synth.transitions.book_batches import (
    CANCELLED,
    DELETED,
    FAILED,
    SAMPLED,
    SAMPLING,
    STATES,
    WAITING,
    count_states,
    with_state,
)
from synth.transitions.jobs import UNFINISHED
from ttsweb import leases

_NOT_STARTED = (WAITING, SAMPLING, SAMPLED)
_CHARS = Coalesce(Cast(KeyTextTransform("spoken_chars", "book__figures"), FloatField()), 0.0)
_CLOSED = F("book__job__segments_done") + F("book__job__segments_failed") + F(
    "book__job__segments_cancelled"
)  # fmt: skip
_SHARE = Cast(_CLOSED, FloatField()) / NullIf(F("book__job__segments_total"), 0)


@dataclass
class BatchFigures:
    """Hold how far a batch is; counts of segments and takes are those of its books' jobs.

    `takes_rendered` has those of samples as well: the books use them again.
    """

    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    share: float = 0.0
    segments_total: int = 0
    segments_done: int = 0
    segments_failed: int = 0
    takes_rendered: int = 0
    takes_reused: int = 0
    audio_seconds: float = 0.0
    expected_seconds: float = 0.0
    real_time_factor: float | None = None
    eta_seconds: int | None = None
    uploads: int = 0
    exports: int = 0
    files: int = 0


def share_figures(ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, BatchFigures]:
    """Return states, counts of segments and share of batches, by two queries; the rest is unset."""
    found = {pk: BatchFigures(states=states) for pk, states in count_states(ids).items()}
    if found:
        _count(ids, found)
    return found


def with_figures(batches: Sequence[Batch]) -> list[Batch]:
    """Set `figures` on batches."""
    ids = [batch.pk for batch in batches]
    found = {pk: BatchFigures(states=states) for pk, states in count_states(ids).items()}
    waiting = _count(ids, found)
    rows = BatchEntry.objects.filter(batch__in=ids, book__sample_job__isnull=False)
    samples = rows.order_by().values_list("batch")
    for batch_id, count in samples.annotate(count=Sum("book__sample_job__takes_rendered")):
        found[batch_id].takes_rendered += count or 0
    _add_running_audio(ids, found)
    _add_bytes(ids, found)
    _estimate(batches, found, waiting)
    for batch in batches:
        batch.figures = found[batch.pk]  # type: ignore[attr-defined]  # as an annotation would be
    return list(batches)


def _count(
    ids: Sequence[uuid.UUID], found: dict[uuid.UUID, BatchFigures]
) -> dict[uuid.UUID, float]:
    """Add what the rows of books and jobs say; return the characters that are not queued yet."""
    entries = with_state(BatchEntry.objects.filter(batch__in=ids)).order_by()
    over = Q(state__in=(FAILED, CANCELLED, DELETED))
    # Of the names of figures those that are sums; the others are worked out below.
    sums = {
        **{
            name: Coalesce(Sum(f"book__job__{name}"), 0)
            for name in (
                "segments_total", "segments_done", "segments_failed", "takes_rendered",
                "takes_reused",
            )
        },
        "audio_seconds": Coalesce(Sum("book__job__audio_seconds"), 0.0),
        "expected_seconds": Coalesce(
            Sum(Cast(KeyTextTransform("expected_seconds", "book__figures"), FloatField())), 0.0
        ),
        "uploads": Coalesce(Sum("book__size_bytes"), 0),
    }  # fmt: skip
    rows = entries.values("batch").annotate(
        known=Count("pk", filter=Q(book__book_key__gt="") | over),
        chars=Sum(_CHARS),
        closed=Coalesce(Sum(_CHARS * _SHARE), 0.0),
        given_up=Coalesce(Sum(_CHARS, filter=over & Q(book__job__isnull=True)), 0.0),
        waiting=Coalesce(Sum(_CHARS, filter=Q(state__in=_NOT_STARTED)), 0.0),
        begun=Min("book__job__started_at"),
        touched=Max("book__job__updated_at"),
        **sums,
    )
    left: dict[uuid.UUID, float] = {}
    for row in rows:
        one = found[row["batch"]]
        books = max(1, sum(one.states.values()))
        if row["chars"]:
            one.share = (row["closed"] + row["given_up"]) / row["chars"] * row["known"] / books
        for name in sums:
            setattr(one, name, row[name])
        if row["begun"] is not None and row["touched"] is not None:
            one.real_time_factor = (row["touched"] - row["begun"]).total_seconds()
        left[row["batch"]] = row["waiting"]
    return left


def _add_running_audio(ids: Sequence[uuid.UUID], found: dict[uuid.UUID, BatchFigures]) -> None:
    """Add the audio of jobs that go on, whose rows do not know it yet, and turn time into speed."""
    rows = Segment.objects.filter(
        job__book__batch_entry__batch__in=ids, job__status__in=UNFINISHED, take__isnull=False
    ).order_by()
    for batch_id, seconds in rows.values_list("job__book__batch_entry__batch").annotate(
        seconds=Sum("take__audio_seconds")
    ):
        found[batch_id].audio_seconds += seconds or 0.0
    for one in found.values():
        elapsed, one.real_time_factor = one.real_time_factor, None
        made = one.takes_rendered + one.takes_reused
        if elapsed and elapsed > 0 and one.takes_rendered:
            rendered = one.audio_seconds * one.takes_rendered / made
            one.real_time_factor = round(rendered / elapsed, 3)


def _add_bytes(ids: Sequence[uuid.UUID], found: dict[uuid.UUID, BatchFigures]) -> None:
    for name, path in (
        ("exports", "job__book__batch_entry__batch"),
        ("exports", "job__sampled_book__batch_entry__batch"),
        ("files", "job__book__batch_entry__batch"),
    ):
        model = Export if name == "exports" else BookFile
        rows = model._default_manager.filter(**{f"{path}__in": ids}).order_by().values_list(path)
        for batch_id, size in rows.annotate(size=Sum("size_bytes")):
            setattr(found[batch_id], name, getattr(found[batch_id], name) + size)


def _estimate(
    batches: Sequence[Batch], found: dict[uuid.UUID, BatchFigures], waiting: dict[uuid.UUID, float]
) -> None:
    """Add when batches are done: what is queued of them, and what is not yet, at today's speed.

    Of a paused batch, or one that waits for a person, nothing can be said.
    """
    open_ids = [
        batch.pk
        for batch in batches
        if batch.ended_at is None and batch.paused_at is None and batch.cancelled_at is None
    ]
    jobs = RenderJob.objects.filter(
        book__batch_entry__batch__in=open_ids, status__in=UNFINISHED, paused_at__isnull=True
    )
    batch_of = dict(jobs.order_by().values_list("pk", "book__batch_entry__batch"))
    left = {batch_id: waiting.get(batch_id, 0.0) for batch_id in open_ids}
    for job_id, chars in chars_left(list(batch_of)).items():
        left[batch_of[job_id]] += chars
    asked: dict[uuid.UUID, tuple[Any, int, str]] = {}
    for batch in batches:
        holds = batch.sample == Batch.Sample.HOLD and batch.approved_at is None
        if left.get(batch.pk) and not holds:
            lane = lane_of(batch.owner_id, batch.api_key)
            asked[batch.pk] = (left[batch.pk], batch.priority, lane)
    for batch_id, seconds in eta_of_chars(asked).items():
        found[batch_id].eta_seconds = seconds


BOOKS_AT_ONCE = 50  # whose segments are counted by one query
STORED = ("uploads", "exports", "files", "takes")
_HAS_ENDED = Q(book__job__status__in=RenderJob.FINAL)
_CHANGED_LATER = _HAS_ENDED & Q(book__job__updated_at__gt=F("batch__updated_at"))


def make_report(batch: Batch) -> dict[str, Any]:
    """Return the summary of a batch: its books in their order, totals, and what was skipped."""
    return _report_of(batch, _rows_of(BatchEntry.objects.filter(batch=batch)))


def correct_report(
    batch_id: uuid.UUID, *, job_id: uuid.UUID | None = None, since: dt.datetime | None = None
) -> bool:
    """Bring the summary of an ended batch up to what its books have become since; tell of nothing.

    A book becomes whole by approvals, or is rendered again in part. Books that are at work, and
    those whose jobs are gone, stay as the summary has them.

    Args:
        job_id: the job of a book that has changed for certain.
        since: books that changed from then on are looked at, too.
    """
    with transaction.atomic():
        batch = Batch.objects.select_for_update().filter(pk=batch_id).first()
        if batch is None or batch.ended_at is None:
            return False
        condition = _CHANGED_LATER
        if job_id is not None:
            condition |= Q(book__job=job_id)
        if since is not None:
            condition |= _HAS_ENDED & Q(book__job__updated_at__gte=since)
        changed = _rows_of(BatchEntry.objects.filter(condition, batch=batch_id))
        if not changed:
            return False
        by_index = {one["index"]: one for one in changed}
        books = [by_index.get(one["index"], one) for one in batch.report.get("books", [])]
        Batch.objects.filter(pk=batch_id).update(
            report=_report_of(batch, books), updated_at=leases.database_now()
        )
    return True


@receiver(job_approved)
def correct_reports_of(job: RenderJob, **_: Any) -> None:
    """Have the summary of an ended batch of books say that this one is whole."""
    entries = BatchEntry.objects.filter(book__job=job.pk)
    for batch_id in entries.values_list("batch", flat=True):
        correct_report(batch_id, job_id=job.pk)


def outdated_batches(ended: QuerySet[Batch]) -> list[uuid.UUID]:
    """Return which ended batches have a book that was changed after their summary was made."""
    entries = BatchEntry.objects.filter(_CHANGED_LATER, batch__in=ended).order_by()
    return list(entries.values_list("batch", flat=True).distinct())


def kept_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a batch's report stays after its end: the entries that were skipped."""
    return {"skipped": report["skipped"]} if report.get("skipped") else {}


def _report_of(batch: Batch, books: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"totals": _totals(books), "books": list(books), **kept_of(batch.report)}


def _rows_of(entries: QuerySet[BatchEntry]) -> list[dict[str, Any]]:
    """Return what the summary says of entries, in their order."""
    shown = list(
        with_state(entries).order_by("index").select_related("book__job", "book__sample_job")
    )
    books: list[dict[str, Any]] = []
    for start in range(0, len(shown), BOOKS_AT_ONCE):
        books += _rows(shown[start : start + BOOKS_AT_ONCE])
    return books


def stored_bytes(entries: Sequence[BatchEntry]) -> dict[int, dict[str, int]]:
    """Return the bytes that are stored for each entry, by what they are; a few queries for all.

    A take that several jobs share counts for each of them: it is stored once.
    """
    owner: dict[uuid.UUID, int] = {}
    found: dict[int, dict[str, int]] = {}
    for entry in entries:
        book = entry.book
        found[entry.pk] = dict.fromkeys(STORED, 0)
        if book is None:
            continue
        found[entry.pk]["uploads"] = book.size_bytes
        for job_id in (book.job_id, book.sample_job_id):
            if job_id is not None:
                owner[job_id] = entry.pk
    for name, sizes in _sizes(list(owner)).items():
        for job_id, size in sizes.items():
            found[owner[job_id]][name] += size
    return {pk: {**sizes, "total": sum(sizes.values())} for pk, sizes in found.items()}


def _sizes(jobs: Collection[uuid.UUID]) -> dict[str, dict[uuid.UUID, int]]:
    """Return the bytes of each job's exports, files and takes."""
    takes = Take.objects.filter(segments__job__in=jobs).order_by().distinct()
    shared: dict[uuid.UUID, int] = defaultdict(int)
    for job_id, _, size in takes.values_list("segments__job", "pk", "size_bytes"):
        shared[job_id] += size
    exports, files = Export.objects.filter(job__in=jobs), BookFile.objects.filter(job__in=jobs)
    return {
        "exports": _by_job(exports, Sum("size_bytes")),
        "files": _by_job(files, Sum("size_bytes")),
        "takes": shared,
    }


def _by_job(rows: QuerySet[Any], what: Aggregate) -> dict[uuid.UUID, int]:
    return dict(rows.order_by().values_list("job").annotate(what=what))


def _rows(entries: Sequence[BatchEntry]) -> list[dict[str, Any]]:
    jobs = [one.book.job_id for one in entries if one.book is not None and one.book.job_id]
    retakes = _by_job(Segment.objects.filter(job__in=jobs), Sum("retakes"))
    done = BookFile.objects.filter(job__in=jobs, status=BookFile.Status.DONE)
    files, stored = _by_job(done, Count("pk")), stored_bytes(entries)
    return [_row(entry, retakes, files, stored[entry.pk]) for entry in entries]


def _row(
    entry: BatchEntry,
    retakes: dict[uuid.UUID, int],
    files: dict[uuid.UUID, int],
    stored: dict[str, int],
) -> dict[str, Any]:
    book = entry.book
    job = book.job if book is not None else None
    sample = book.sample_job if book is not None else None
    code, message = error_of(entry)
    return {
        "index": entry.index,
        "file": entry.filename,
        "book": str(book.pk) if book is not None else None,
        "title": str(book) if book is not None else "",
        "status": entry.state,  # type: ignore[attr-defined]  # annotated
        "audio_seconds": round(job.audio_seconds, 3) if job else 0.0,
        "real_time_factor": real_time_factor(job) if job and job.takes_rendered else None,
        "segments": job.segments_total if job else 0,
        "segments_failed": job.segments_failed if job else 0,
        "takes_rendered": sum(one.takes_rendered for one in (job, sample) if one is not None),
        "takes_reused": job.takes_reused if job else 0,
        "retakes": retakes.get(job.pk, 0) if job else 0,
        "files": files.get(job.pk, 0) + bool(job.audio_seconds) if job else 0,
        "bytes": stored,
        "error_code": code,
        "error_message": message,
    }


def error_of(entry: BatchEntry) -> tuple[str, str]:
    """Return the code and the sentence of what is wrong with an entry's book; empty for nothing."""
    failed = entry.book and (entry.book.job or entry.book)
    return (failed.error_code, failed.error_message) if failed is not None else ("", "")


def _totals(books: Sequence[dict[str, Any]]) -> dict[str, Any]:
    summed = (
        "segments", "segments_failed", "takes_rendered", "takes_reused", "retakes", "files",
    )  # fmt: skip
    return {
        "books": len(books),
        "states": {state: sum(one["status"] == state for one in books) for state in STATES},
        "audio_seconds": round(sum(one["audio_seconds"] for one in books), 3),
        **{name: sum(one[name] for one in books) for name in summed},
        "bytes": {name: sum(one["bytes"][name] for one in books) for name in (*STORED, "total")},
    }
