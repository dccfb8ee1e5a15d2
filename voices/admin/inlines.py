"""Show in a voice's page its clips, and its versions with what changed from one to the next."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from unfold.admin import StackedInline, TabularInline

from voices.access import may_change
from voices.admin.forms import ClipRowForm, ClipRowFormSet
from voices.models import ReferenceClip, Voice, VoiceVersion


def changes_of(version: VoiceVersion) -> str:
    """Return how a version differs from the one before it, such as "clip 1 replaced".

    Clips are told apart by their bytes, and counted from 1. The queries are two at most, none
    where the voice's versions and their clips are fetched already.
    """
    voice = version.voice
    if voice is None:
        return "came with a job"
    older = [one for one in voice.versions.all() if one.number < version.number]
    if not older:
        return "first version"
    before = max(older, key=lambda one: one.number)
    return "; ".join(_changes(list(before.clips.all()), list(version.clips.all()))) or "nothing"


def _changes(before: list[ReferenceClip], after: list[ReferenceClip]) -> list[str]:
    if not before:  # the clips of a version go with its voice
        return ["clips of the previous version are no longer stored"]
    found = []
    for number, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        if old.stored_id != new.stored_id:
            found.append(f"clip {number} replaced")
        if old.transcript != new.transcript:
            found.append(f"transcript {number} changed")
    added, removed = len(after) - len(before), len(before) - len(after)
    if added > 0:
        found.append(f"{added} clip{'s' if added > 1 else ''} added")
    if removed > 0:
        found.append(f"{removed} clip{'s' if removed > 1 else ''} removed")
    return found


class ClipInline(StackedInline):
    """The clips that a voice has, or is to have; the formset reads and the page saves them."""

    model = VoiceVersion
    form = ClipRowForm
    formset = ClipRowFormSet
    fields = ("clip", "audio", "transcript")
    verbose_name = "clip"
    verbose_name_plural = "clips"
    template_before = "voices/clip_limits.html"

    @property
    def limits(self) -> dict[str, float]:
        """Return what the page's report of a clip holds it against, seconds and bytes."""
        return {
            "shortest": settings.MIN_REFERENCE_SECONDS,
            "longest": settings.MAX_REFERENCE_SECONDS,
            "bytes": settings.MAX_CLIP_BYTES,
        }

    def get_extra(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> int:
        """Return one row for each clip, and one for the first of a new voice."""
        version = obj.current_version if isinstance(obj, Voice) else None
        return version.clips.count() if version else 1

    def get_max_num(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> int:
        """Return how many clips a voice may have."""
        return int(settings.MAX_CLIPS_PER_VOICE)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let those add clips who may add or change the voice."""
        if isinstance(obj, Voice) and not may_change(request.user, obj):
            return False
        name = "change" if obj is not None else "add"
        return bool(request.user.has_perm(f"voices.{name}_voice"))

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the voice."""
        return self.has_add_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the voice: leaving a clip out is a change of it."""
        return self.has_add_permission(request, obj)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the voice."""
        return bool(request.user.has_perm("voices.view_voice")) or self.has_add_permission(
            request, obj
        )


class VersionInline(TabularInline):
    """What versions a voice had; versions never change."""

    model = VoiceVersion
    fields = (
        "number",
        "changed",
        "status",
        "frames",
        "codec",
        "error_code",
        "created_at",
        "encoded_at",
    )
    readonly_fields = fields
    verbose_name_plural = "version history"
    can_delete = False
    max_num = 0
    classes = ("collapse",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[VoiceVersion]:
        """Return the versions with the clips of their voice's other versions."""
        versions: QuerySet[VoiceVersion] = super().get_queryset(request)
        return versions.prefetch_related("clips", "voice__versions__clips")

    @admin.display(description="what changed")
    def changed(self, version: VoiceVersion) -> str:
        """Return in words how a version differs from the one before it."""
        return changes_of(version)

    @admin.display(description="codec")
    def codec(self, version: VoiceVersion) -> str:
        """Return the beginning of the codec's fingerprint."""
        return version.codec_fingerprint[:12] or "-"

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Follow the voice."""
        return bool(request.user.has_perm("voices.view_voice"))

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody."""
        return False

    has_change_permission = has_delete_permission = has_add_permission
