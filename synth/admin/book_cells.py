"""Say what the admin's pages show of a book: its state, its voices, its chapters and segments."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from django.db.models import Count, Min, Q, QuerySet, Sum
from django.urls import reverse

from synth.admin.jobs import COLOURS, SEGMENT_ORDER, SEGMENTS_PER_PAGE, state_context
from synth.admin.jobs import voices_of as voices_of_job
from synth.api.books.serializers import Progress, audio_url_of, status_of, with_progress
from synth.api.jobs.serializers import progress_of
from synth.audiobooks.plans import authors_of, title_of
from synth.jobs.eta import hours, without_eta
from synth.models import BookSource, RenderJob, Segment
from ttsweb.refusals import counted
from voices.models import Voice

WORKING = ("importing", "queued", "running")  # what changes without anybody doing something
_OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
_ENDED = (Segment.Status.FAILED, Segment.Status.CANCELLED)
_MOST_NAMED = 100


def add_progress(book: Any) -> Any:
    return book if hasattr(book, "progress") else with_progress([book])[0]


def words_of(book: BookSource) -> list[str]:
    status = status_of(book)
    expected = float(book.figures.get("expected_seconds", 0.0))
    if status == "importing":
        return ["waiting to be read" if book.claim_token is None else "being read"]
    if book.job is None:
        if not book.figures:
            return []
        included, total = book.figures.get("included", 0), book.figures.get("chapters", 0)
        return [f"{included} of {counted(total, 'chapter')}", f"about {hours(expected)}"]
    progress: Progress = add_progress(book).progress
    words = [f"{progress.chapters_done} of {counted(progress.chapters_total, 'chapter')}"]
    if status in ("succeeded", "partial"):
        return [*words, hours(book.job.audio_seconds or progress.audio_seconds)]
    words.append(f"{hours(progress.audio_seconds)} of about {hours(expected)}")
    if progress.eta_seconds is not None:
        words.append(f"about {hours(progress.eta_seconds)} left")
    elif status == "running":
        words.append(without_eta(book.job))
    return words


def cell_context(book: BookSource) -> dict[str, Any]:
    status = status_of(book)
    share = progress_of(book.job) if book.job is not None else 0.0
    failed: Any = book if book.job is None else book.job
    return {
        **state_context(status, share, words_of(book), is_open=status in WORKING),
        "book": book,
        "title": title_of(book),
        "authors": authors_of(book),
        "url": audio_url_of(book),
        "error_code": failed.error_code,
        "error_message": failed.error_message,
        "cover_url": reverse("book-cover", args=[book.pk]) if book.cover_key else "",
    }


def voices_of(book: Any) -> str:
    """Return who speaks: the voices of its job, else those that were asked for."""
    if book.job is not None:
        return voices_of_job(book.job, "deleted voice")
    names: dict[str, str] = getattr(book, "voice_names", None) or voice_names([book])
    return ", ".join(names.get(text, text) for text in _asked(book)) or "no voice yet"


def voice_names(books: Sequence[BookSource]) -> dict[str, str]:
    """Return the names of voices that books ask for by their ids, in one query for all."""
    ids: dict[str, uuid.UUID] = {}
    for text in {text for book in books for text in _asked(book)}:
        with suppress(ValueError):
            ids[text] = uuid.UUID(text)
    names = dict(Voice.objects.filter(pk__in=ids.values()).values_list("pk", "name"))
    return {text: names[pk] for text, pk in ids.items() if pk in names}


def _asked(book: BookSource) -> list[str]:
    voices: Iterable[Any] = book.options.get("voices", {}).values()
    return [str(one) for one in (book.options.get("voice"), *voices) if one]


def chapter_rows(job: RenderJob, report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each chapter's state, counts and length, and where it is in the job's file."""
    rows = job.chapters.order_by("index").annotate(
        segments_total=Count("segments"),
        segments_done=Count("segments", filter=Q(segments__status=Segment.Status.DONE)),
        segments_bad=Count("segments", filter=Q(segments__status__in=_ENDED)),
        segments_open=Count("segments", filter=Q(segments__status__in=_OPEN)),
        spoken=Sum("segments__take__audio_seconds"),
        first=Min("segments__id", filter=Q(segments__take__isnull=False)),
    )
    measured = _measured(report)
    spoken = 0  # a chapter of which nothing was spoken is not in the file
    found = []
    for row in rows:
        marks = measured[spoken] if row.segments_done and spoken < len(measured) else {}
        spoken += bool(row.segments_done)
        found.append(_row(job, row, marks))
    return found


def segment_rows(job_id: uuid.UUID, index: int) -> QuerySet[Segment]:
    rows = Segment.objects.filter(job=job_id, chapter__index=index)
    return rows.select_related("take").order_by("index")


def named_segments(job_id: uuid.UUID, short: Sequence[int]) -> list[dict[str, Any]]:
    """Return the segments that a proof complains of, why, and where their job's page has them."""
    wanted = Q(status__in=_ENDED) | Q(pk__in=list(short))
    rows = Segment.objects.filter(wanted, job=job_id).select_related("take", "chapter")
    rows = rows.order_by("chapter__index", "index")[:_MOST_NAMED]
    keys = Segment.objects.filter(job=job_id).order_by(*SEGMENT_ORDER).values_list("pk", flat=True)
    places = {pk: place for place, pk in enumerate(keys)}
    page = reverse("admin:synth_renderjob_change", args=[job_id])
    return [
        {
            "segment": row,
            "why": "too short for its text"
            if row.status == Segment.Status.DONE
            else row.error_message or f"it is {row.status}",
            "url": f"{page}?segments-page={places[row.pk] // SEGMENTS_PER_PAGE + 1}",
        }
        for row in rows
    ]


def plot_of(report: dict[str, Any]) -> dict[str, Any] | None:
    """Return the bars of a report's chapters, in percent of the plot's height; None without any."""
    rows = [row for row in _measured(report) if row.get("loudness_lufs") is not None]
    if not rows:
        return None
    target = report.get("target_lufs")
    known = [row["loudness_lufs"] for row in rows] + ([target] if target is not None else [])
    low, high = min(known) - 3, max(known) + 1

    def height(level: float) -> float:
        return float(100 * (level - low) / (high - low))

    return {
        "width": len(rows),
        "low": round(low),
        "high": round(high),
        "target": None if target is None else f"{100 - height(target):.1f}",
        "bars": [
            {
                "x": place,
                "y": f"{100 - height(row['loudness_lufs']):.1f}",
                "height": f"{height(row['loudness_lufs']):.1f}",
                "title": f"{row['title']}: {row['loudness_lufs']:.1f} LUFS",
            }
            for place, row in enumerate(rows)
        ],
    }


def _measured(report: dict[str, Any]) -> list[dict[str, Any]]:
    chapters = report.get("chapters")
    return chapters if isinstance(chapters, list) else []


def _row(job: RenderJob, row: Any, marks: dict[str, Any]) -> dict[str, Any]:
    if row.segments_open:
        state = "running" if row.segments_done or row.segments_bad else "queued"
    elif row.segments_bad:
        state = "partial" if row.segments_done else "failed"
    else:
        state = "done"
    return {
        "index": row.index,
        "number": row.index + 1,
        "title": row.title or f"Chapter {row.index + 1}",
        "state": state,
        "colour": COLOURS.get(state, "pending"),
        "done": row.segments_done,
        "bad": row.segments_bad,
        "total": row.segments_total,
        "length": hours(marks.get("seconds", row.spoken or 0.0)) if row.segments_done else "-",
        "seconds": marks.get("seconds", row.spoken or 0.0),
        # As text: a page in another language would write the number with a comma.
        "start": str(marks["start_seconds"]) if "start_seconds" in marks else "",
        "first_url": reverse("job-segment-audio", args=[job.pk, row.first]) if row.first else "",
    }
