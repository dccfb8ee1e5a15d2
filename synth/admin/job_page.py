"""Gather what the admin's page of a job shows: how far it is, its sound, its segments."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from synth.admin.job_cells import cell_context
from synth.api.jobs.serializers import file_name_of, has_audio
from synth.jobs.eta import real_time_factor
from synth.jobs.retry import may_retry
from synth.models import Export, ExportCues, RenderJob, Segment
from synth.transitions import UNFINISHED

SEGMENTS_PER_PAGE = 50  # a book has thousands
PAGE_PARAMETER = "segments-page"
SEGMENT_ORDER = ("chapter__index", "index")
MOST_MARKS = 2000
_COLOURS = {"claimed": "encoding", "done": "ready", "failed": "failed"}
# What the page calls the states of a segment.
_WORDS = {"claimed": "rendering"}
_AGAIN = (Segment.Status.DONE, Segment.Status.FAILED)


def page_context(request: HttpRequest, job: RenderJob, *, may_control: bool) -> dict[str, Any]:
    """Return what the page of a job shows above its request."""
    page = Paginator(segments_of(job), SEGMENTS_PER_PAGE).get_page(request.GET.get(PAGE_PARAMETER))
    factor = real_time_factor(job)
    return {
        "job": job,
        **cell_context(job),
        "is_open": job.status in UNFINISHED,
        "may_cancel": may_control and job.status in UNFINISHED and not job.cancel_requested,
        "may_retry": may_control and may_retry(job),
        "speed": "" if factor is None else f"{factor:.1f}",
        "segment_page": page,
        "rows": [_row(job, segment, may_control=may_control) for segment in page],
        "page_parameter": PAGE_PARAMETER,
        **_sound(job),
    }


def segments_of(job: RenderJob) -> QuerySet[Segment]:
    """Return the segments of a job in the order of its page."""
    return job.segments.select_related("take", "chapter").order_by(*SEGMENT_ORDER)


def _sound(job: RenderJob) -> dict[str, Any]:
    """Return what can be heard of a job: its file with its marks, or what is rendered so far."""
    url = reverse("job-audio", args=[job.pk])
    if not has_audio(job):
        can_listen = job.status in UNFINISHED and job.speed == 1
        return {"live_url": f"{url}?live=1" if can_listen else ""}
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    return {
        "file_url": url,
        "filename": file_name_of(job),
        "peaks": export.peaks if export else None,
        "file_seconds": f"{export.duration_seconds if export else job.audio_seconds:.3f}",
        "marks": _marks(job, export),
    }


def _marks(job: RenderJob, export: Export | None) -> list[list[float]]:
    """Return number, start and end of each segment in the file, in seconds."""
    found = ExportCues.objects.filter(export=export).first() if export is not None else None
    if found is None or len(found.cues) > MOST_MARKS:
        return []
    rows = job.segments.order_by(*SEGMENT_ORDER).values_list("pk", flat=True)
    numbers = {pk: number for number, pk in enumerate(rows, start=1)}
    rate = found.sample_rate
    return [
        [numbers[pk], round(start / rate, 3), round(end / rate, 3)]
        for pk, start, end in found.cues
        if pk in numbers
    ]


def _row(job: RenderJob, segment: Segment, *, may_control: bool) -> dict[str, Any]:
    may = may_control and segment.status in _AGAIN and job.status != RenderJob.Status.CANCELLED
    used = str(segment.take_id)
    takes = [one for one in segment.candidates if one.get("take") is not None]
    args = [job.pk, segment.pk]
    return {
        "segment": segment,
        "take": segment.take,
        "colour": _COLOURS.get(segment.status, "pending"),
        "status": _WORDS.get(segment.status, segment.status),
        "url": reverse("job-segment-audio", args=args) if segment.take_id else "",
        "seed": str(segment.seed),
        "again_url": reverse("job-segment-render", args=args) if may else "",
        "choose_url": reverse("job-segment-choose", args=args),
        "others": [
            {"number": number, "body": f'{{"take": "{one["take"]}"}}', "seed": one["seed"]}
            for number, one in enumerate(takes, start=1)
            if may and one["take"] != used
        ],
    }
