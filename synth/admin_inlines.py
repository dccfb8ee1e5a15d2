"""Show in a job's page what its text was cut into, and what came of each piece."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.admin import TabularInline
from unfold.decorators import display

from synth.models import RenderJob, Segment

_BADGES = {"claimed": "encoding", "done": "ready", "failed": "failed"}
_AGAIN = (Segment.Status.DONE, Segment.Status.FAILED)


class SegmentInline(TabularInline):
    """The segments in their order, with player, quality marks and what can be done about them."""

    model = Segment
    fields = (
        "number",
        "said",
        "state",
        "audio",
        "quality",
        "seed",
        "attempts",
        "error",
        "again",
    )
    readonly_fields = fields
    ordering = ("chapter__index", "index")
    verbose_name_plural = "segments"
    can_delete = False
    max_num = 0
    per_page = 50  # a book has thousands
    hide_title = True  # the id of the job, again in each row

    def get_queryset(self, request: HttpRequest) -> QuerySet[Segment]:
        """Return the segments with their takes."""
        segments: QuerySet[Segment] = super().get_queryset(request)
        return segments.select_related("take", "job")

    @admin.display(description="#")
    def number(self, segment: Segment) -> int:
        """Return the place in the text, from 0 as the API has it."""
        return segment.index

    @admin.display(description="text")
    def said(self, segment: Segment) -> SafeString:
        """Return what the text says, and what is spoken where that differs."""
        return _render("segment_text", {"segment": segment})

    @display(description="status")
    def state(self, segment: Segment) -> SafeString:
        """Return the status as a badge."""
        colour = _BADGES.get(segment.status, "pending")
        return _render("segment_state", {"segment": segment, "colour": colour})

    @admin.display(description="audio")
    def audio(self, segment: Segment) -> SafeString:
        """Return a player of the segment alone."""
        url = _url("job-segment-audio", segment) if segment.take_id else ""
        return _render("segment_audio", {"segment": segment, "url": url})

    @admin.display(description="quality")
    def quality(self, segment: Segment) -> SafeString:
        """Return what the screen found of the take that is used."""
        return _render("segment_quality", {"segment": segment, "take": segment.take})

    @admin.display(description="error")
    def error(self, segment: Segment) -> str:
        """Return code and sentence of what went wrong."""
        if not segment.error_code:
            return "-"
        return f"{segment.error_code}: {segment.error_message}"

    @admin.display(description="again")
    def again(self, segment: Segment) -> SafeString:
        """Return a button that renders the segment again, and one for each other take of it."""
        may = segment.status in _AGAIN and segment.job.status != RenderJob.Status.CANCELLED
        used = str(segment.take_id)
        others = [one for one in segment.candidates if one.get("take") not in (None, used)]
        return _render(
            "segment_again",
            {
                "segment": segment,
                "again": _url("job-segment-render", segment) if may else "",
                "choose": _url("job-segment-choose", segment),
                "others": others if may else [],
            },
        )

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the job."""
        return bool(request.user.has_perm("synth.view_renderjob"))

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody."""
        return False

    has_change_permission = has_delete_permission = has_add_permission


def _url(name: str, segment: Segment) -> str:
    return reverse(name, args=[segment.job_id, segment.pk])


def _render(template: str, context: dict[str, object]) -> SafeString:
    return SafeString(render_to_string(f"synth/{template}.html", context))
