"""Show the review list in the admin: one page, made of what the API has of segments."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from unfold.admin import ModelAdmin

from synth.models import Segment
from synth.review.flags import FLAGS
from synth.review.groups import groups_of

_ANY_JOB = uuid.UUID(int=0)
KEYS = (
    ("j, k", "next segment, previous segment"),
    ("Space", "play the segment in context, or stop"),
    ("Shift + 1 to 9", "listen to a take"),
    ("1 to 9", "choose a take"),
    ("a", "approve the chosen take"),
    ("r", "render the segment again with another seed"),
    ("e", "edit the spoken text; Ctrl + Enter renders it, Escape discards the change"),
    ("?", "show or hide this help"),
)


@admin.register(Segment)
class ReviewAdmin(ModelAdmin):
    """The segments that need somebody's ears, worst first; they have no pages of their own."""

    def get_urls(self) -> list[Any]:
        """Return the one page; jobs show their segments themselves."""
        page = self.admin_site.admin_view(self.changelist_view)
        return [path("", page, name="synth_segment_changelist")]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Return the page; its script asks for the rows."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        may_control = bool(request.user.has_perm("synth.change_renderjob"))
        job_page = reverse("admin:synth_renderjob_change", args=[_ANY_JOB])
        context = {
            **self.admin_site.each_context(request),
            "title": "Review",
            "flags": list(FLAGS),
            "keys": KEYS,
            "review_url": reverse("review"),
            "groups": groups_of(request.user),
            "may_control": may_control,
            "approve_url": reverse("review-approve-all"),
            "job_page": job_page.replace(str(_ANY_JOB), "{job}"),
        }
        return TemplateResponse(request, "synth/review.html", context | (extra_context or {}))

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the jobs."""
        return bool(request.user.has_perm("synth.view_renderjob"))

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Show the page to those who may see jobs."""
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody."""
        return False

    has_change_permission = has_delete_permission = has_add_permission
