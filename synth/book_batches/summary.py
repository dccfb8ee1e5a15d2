"""Sum a batch of books up: what it was made of, how it ended, how fast, and what it takes."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Q, QuerySet, Sum

from synth.book_batches.states import STATES, with_state
from synth.models import BookBatch, BookBatchEntry, BookFile, Export, RenderJob, Segment, Take
from ttsweb import leases

BOOKS_AT_ONCE = 50  # whose segments are counted by one query
STORED = ("uploads", "exports", "files", "takes")
_HAS_ENDED = Q(book__job__status__in=RenderJob.FINAL)
_CHANGED_LATER = _HAS_ENDED & Q(book__job__updated_at__gt=F("batch__updated_at"))


def make_report(batch: BookBatch) -> dict[str, Any]:
    """Return the summary of a batch: its books in their order, totals, and what was skipped."""
    entries = BookBatchEntry.objects.filter(batch=batch)
    return _report_of(batch, _rows_of(entries))


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
        batch = BookBatch.objects.select_for_update().filter(pk=batch_id).first()
        if batch is None or batch.ended_at is None:
            return False
        condition = _CHANGED_LATER
        if job_id is not None:
            condition |= Q(book__job=job_id)
        if since is not None:
            condition |= _HAS_ENDED & Q(book__job__updated_at__gte=since)
        changed = _rows_of(BookBatchEntry.objects.filter(condition, batch=batch_id))
        if not changed:
            return False
        by_index = {one["index"]: one for one in changed}
        books = [by_index.get(one["index"], one) for one in batch.report.get("books", [])]
        BookBatch.objects.filter(pk=batch_id).update(
            report=_report_of(batch, books), updated_at=leases.database_now()
        )
    return True


def outdated_batches(ended: QuerySet[BookBatch]) -> list[uuid.UUID]:
    """Return which ended batches have a book that was changed after their summary was made."""
    entries = BookBatchEntry.objects.filter(_CHANGED_LATER, batch__in=ended).order_by()
    return list(entries.values_list("batch", flat=True).distinct())


def kept_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a batch's report outlasts its end: the entries that were skipped."""
    return {"skipped": report["skipped"]} if report.get("skipped") else {}


def _report_of(batch: BookBatch, books: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"totals": _totals(books), "books": list(books), **kept_of(batch.report)}


def _rows_of(entries: QuerySet[BookBatchEntry]) -> list[dict[str, Any]]:
    """Return what the summary says of entries, in their order."""
    shown = list(
        with_state(entries).order_by("index").select_related("book__job", "book__sample_job")
    )
    books: list[dict[str, Any]] = []
    for start in range(0, len(shown), BOOKS_AT_ONCE):
        books += _rows(shown[start : start + BOOKS_AT_ONCE])
    return books


def stored_bytes(entries: Sequence[BookBatchEntry]) -> dict[int, dict[str, int]]:
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
    exports = Export.objects.filter(job__in=jobs).order_by().values_list("job")
    files = BookFile.objects.filter(job__in=jobs).order_by().values_list("job")
    takes = Take.objects.filter(segments__job__in=jobs).order_by().distinct()
    shared: dict[uuid.UUID, int] = defaultdict(int)
    for job_id, _, size in takes.values_list("segments__job", "pk", "size_bytes"):
        shared[job_id] += size
    return {
        "exports": dict(exports.annotate(size=Sum("size_bytes"))),
        "files": dict(files.annotate(size=Sum("size_bytes"))),
        "takes": shared,
    }


def _rows(entries: Sequence[BookBatchEntry]) -> list[dict[str, Any]]:
    jobs = [one.book.job_id for one in entries if one.book is not None and one.book.job_id]
    retakes = dict(
        Segment.objects.filter(job__in=jobs)
        .order_by()
        .values_list("job")
        .annotate(count=Sum("retakes"))
    )
    files = dict(
        BookFile.objects.filter(job__in=jobs, status=BookFile.Status.DONE)
        .order_by()
        .values_list("job")
        .annotate(Count("pk"))
    )
    stored = stored_bytes(entries)
    return [_row(entry, retakes, files, stored[entry.pk]) for entry in entries]


def _row(
    entry: BookBatchEntry,
    retakes: dict[uuid.UUID, int],
    files: dict[uuid.UUID, int],
    stored: dict[str, int],
) -> dict[str, Any]:
    book = entry.book
    job = book.job if book is not None else None
    code, message = error_of(entry)
    told: dict[str, Any] = {
        "index": entry.index,
        "file": entry.filename,
        "book": str(book.pk) if book is not None else None,
        "title": str(book) if book is not None else "",
        "status": entry.state,  # type: ignore[attr-defined]  # annotated
        "audio_seconds": 0.0,
        "real_time_factor": None,
        "segments": 0,
        "segments_failed": 0,
        "takes_rendered": 0,
        "takes_reused": 0,
        "retakes": 0,
        "files": 0,
        "bytes": stored,
        "error_code": code,
        "error_message": message,
    }
    if job is not None:
        told |= {
            "audio_seconds": round(job.audio_seconds, 3),
            "real_time_factor": speed_of(job),
            "segments": job.segments_total,
            "segments_failed": job.segments_failed,
            "takes_rendered": job.takes_rendered,
            "takes_reused": job.takes_reused,
            "retakes": retakes.get(job.pk, 0),
            "files": files.get(job.pk, 0) + bool(job.audio_seconds),
        }
    if book is not None and book.sample_job is not None:
        told["takes_rendered"] += book.sample_job.takes_rendered
    return told


def error_of(entry: BookBatchEntry) -> tuple[str, str]:
    """Return the code and the sentence of what is wrong with an entry's book; empty for nothing."""
    book = entry.book
    if book is None:
        return "", ""
    if book.job is not None:
        return book.job.error_code, book.job.error_message
    return book.error_code, book.error_message


def speed_of(job: RenderJob) -> float | None:
    """Return the seconds of audio per second of work of an ended job that rendered anything."""
    if job.started_at is None or job.finished_at is None or not job.takes_rendered:
        return None
    seconds = (job.finished_at - job.started_at).total_seconds()
    return round(job.audio_seconds / seconds, 3) if seconds > 0 else None


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
