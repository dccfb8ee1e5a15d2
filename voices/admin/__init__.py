"""Manage voices in the admin: clips come in, versions are made, states are seen, names given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.forms import BaseModelForm, formset_factory
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils.safestring import SafeString
from unfold.admin import StackedInline, TabularInline
from unfold.decorators import action

from ttsweb.pages.admin_base import (
    NamedValuesFilter,
    NounAdmin,
    RightsMixin,
    column,
    page_action,
    row_action,
)
from ttsweb.refusals import counted
from voices import submit
from voices.access import WELL_KNOWN, default_voices, may_change, sent_names, visible_voices
from voices.admin.forms import AliasRow, AliasRows, ClipRowForm, ClipRowFormSet, VoiceForm
from voices.clip_checks import MAX_REFERENCE_SECONDS, MIN_REFERENCE_SECONDS, ClipRejectedError
from voices.models import Voice, VoiceAlias, VoiceVersion
from voices.objects import delete_voice
from voices.transitions import request_encoding

_OPEN = (VoiceVersion.Status.PENDING, VoiceVersion.Status.ENCODING)


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
    before = list(max(older, key=lambda one: one.number).clips.all())
    after = list(version.clips.all())
    if not before:  # the clips of a version go with its voice
        return "clips of the previous version are no longer stored"
    found = []
    for number, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        if old.stored_id != new.stored_id:
            found.append(f"clip {number} replaced")
        if old.transcript != new.transcript:
            found.append(f"transcript {number} changed")
    if len(after) != len(before):
        word = "added" if len(after) > len(before) else "removed"
        found.append(f"{counted(abs(len(after) - len(before)), 'clip')} {word}")
    return "; ".join(found) or "nothing"


class ClipInline(RightsMixin, StackedInline):
    """The clips that a voice has, or is to have; the formset reads and the page saves them."""

    rights_of = Voice
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
            "shortest": MIN_REFERENCE_SECONDS,
            "longest": MAX_REFERENCE_SECONDS,
            "bytes": settings.MAX_CLIP_BYTES,
        }

    @property
    def transcripts(self) -> str:
        """Return where transcripts are proposed, empty where no transcriber is set up."""
        return reverse("voice-transcripts") if settings.TRANSCRIBER else ""

    def get_extra(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> int:
        version = obj.current_version if isinstance(obj, Voice) else None
        return version.clips.count() if version else 1

    def get_max_num(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> int:
        return int(settings.MAX_CLIPS_PER_VOICE)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let those add clips who may add or change the voice."""
        if isinstance(obj, Voice) and not may_change(request.user, obj):
            return False
        return self.has_right(request, "change" if obj is not None else "add")

    has_change_permission = has_delete_permission = has_add_permission  # follow the voice

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_right(request, "view") or self.has_add_permission(request, obj)


class VersionInline(RightsMixin, TabularInline):
    """What versions a voice had; versions never change."""

    rights_of = Voice
    model = VoiceVersion
    fields = (
        "number", "changed", "status", "frames", "codec", "error_code", "created_at", "encoded_at",
    )  # fmt: skip
    readonly_fields = fields
    verbose_name_plural = "version history"
    can_delete = False
    max_num = 0
    classes = ("collapse",)

    changed = column("what changed", changes_of)
    codec = column("codec", lambda version: version.codec_fingerprint[:12] or "-")

    def get_queryset(self, request: HttpRequest) -> QuerySet[VoiceVersion]:
        versions: QuerySet[VoiceVersion] = super().get_queryset(request)
        return versions.prefetch_related("clips", "voice__versions__clips")


def _state(voice: Voice, template: str) -> SafeString:
    version = voice.current_version
    is_open = version is not None and version.status in _OPEN
    context = {"voice": voice, "version": version, "is_open": is_open}
    return SafeString(render_to_string(template, context))


def _clip(voice: Voice) -> SafeString:
    """Return the first clip's waveform and a player that loads nothing before it is asked."""
    version = voice.current_version
    first = next(iter(version.clips.all()), None) if version else None
    if first is None:
        return SafeString("-")
    context = {
        "name": voice.name,
        "peaks": first.stored.measures.get("peaks"),
        "url": reverse("voice-audio", args=[voice.pk]),
    }
    return SafeString(render_to_string("voices/list_clip.html", context))


_encode_again = row_action(
    "encode_again",
    "Encode again",
    "queued to be encoded again",
    lambda voice: voice.current_version is not None and request_encoding(voice.current_version),
    same="already waiting to be encoded",
)


def _setting(name: str, label: str, done: str, field: str, value: bool) -> Callable[..., None]:
    """Return an action that changes one thing of the chosen voices where it is another one."""

    @admin.action(description=label, permissions=["control"])
    def act(page: NounAdmin, request: HttpRequest, voices: QuerySet[Voice]) -> None:
        def change(voice: Voice) -> bool:
            was = voice.archived if field == "archived" else voice.consent_withdrawn_at is not None
            if was != value:
                by = request.user.get_username()
                submit.update_voice(voice, by=by, changes={field: value}, clips=None)
            return was != value

        page.act_on_rows(request, voices, change, done)

    act.__name__ = name
    return act


@admin.register(Voice)
class VoiceAdmin(NounAdmin):
    """Voices: the owner and superusers change each, and others only look at the shared ones."""

    allowed = ("view", "add", "change", "delete")
    owned = staticmethod(may_change)
    visible = staticmethod(visible_voices)
    deletes = staticmethod(delete_voice)
    deletion = "The voice {row}, its clips and its codes"
    save_refusals = (
        submit.VoiceNameTakenError, submit.VoiceDeletedError, ClipRejectedError, OSError,
    )  # fmt: skip
    form = VoiceForm
    list_display = (
        "name", "language", "status", "frames", "clip", "visibility", "last_used_at", "updated_at",
    )  # fmt: skip
    list_filter = ("archived", "shared", ("language", NamedValuesFilter))
    search_fields = ("name", "description")
    ordering = ("name",)
    actions = (
        _encode_again,
        _setting("archive", "Archive", "archived", "archived", True),
        _setting(
            "unarchive", "Restore from the archive", "no longer archived", "archived", False
        ),
        _setting(
            "withdraw_consent", "Withdraw the consent", "silenced, as the consent is withdrawn",
            "consent_withdrawn", True,
        ),
        _setting(
            "renew_consent", "Record that the speaker agrees again", "allowed to speak again",
            "consent_withdrawn", False,
        ),
    )  # fmt: skip
    list_before_template = "voices/import_form.html"
    change_form_outer_before_template = "voices/try_it.html"
    actions_detail = ("encode_this_again", "export_this")
    add_fieldsets = (
        (None, {"fields": ("name", "language", "description", "shared", "cache_codes")}),
        ("Consent", {"fields": ("consent_statement",)}),
    )
    fieldsets = (
        (None, {"fields": ("state", "name", "language", "description", "shared", "cache_codes")}),
        ("Consent", {"fields": (
            "consent_statement", ("consent_by", "consent_at"), "consent_withdrawn_at",
        )}),
    )  # fmt: skip
    readonly_fields = ("state", "consent_by", "consent_at", "consent_withdrawn_at")

    status = column("status", lambda voice: _state(voice, "voices/list_state.html"))
    state = column("state", lambda voice: _state(voice, "voices/state.html"))
    frames = column(
        "frames", lambda voice: voice.current_version.frames if voice.current_version else 0
    )
    clip = column("clip", _clip)
    visibility = column(  # who can speak with it
        "seen by",
        lambda voice: (
            "consent withdrawn" if voice.consent_withdrawn_at is not None
            else "archived" if voice.archived
            else "all" if voice.shared or voice.owner_id is None
            else "its owner"
        ),
        None,
        {
            "consent withdrawn": "danger", "archived": "warning", "all": "info",
            "its owner": "success",
        },
    )  # fmt: skip
    encode_this_again = page_action(
        "encode_this_again", "Encode again", "Encode this voice again",
        "The encoder runs again on this voice's clips; jobs wait until it is done.",
        lambda page, request, pk: _encode_again(page, request, [page.find_row(request, pk)]),
    )  # fmt: skip

    class Media:
        js = tuple(
            f"ttsweb/{name}.js"
            for name in ("clip_report", "recorder", "clip_form", "try_it", "import_voice")
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).prefetch_related("versions__clips__stored")

    def get_inlines(self, request: HttpRequest, obj: Model | None) -> list[type[Any]]:
        return [ClipInline, VersionInline] if obj is not None else [ClipInline]

    @action(description="Export", permissions=["view"])
    def export_this(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Download the voice of this page as one file, as the API gives it."""
        return HttpResponseRedirect(reverse("voice-export", args=[object_id]))

    def save_model(
        self, request: HttpRequest, obj: Voice, form: BaseModelForm[Voice], change: bool
    ) -> None:
        """Save nothing yet: a voice is saved together with its clips, below."""

    def save_related(
        self, request: HttpRequest, form: Any, formsets: Sequence[Any], change: bool
    ) -> None:
        """Save the voice; other clips or transcripts make a version and enqueue its encoding."""
        clips = next(rows.new_clips for rows in formsets if isinstance(rows, ClipRowFormSet))
        by = request.user.get_username()
        if change:
            changes = {name: form.cleaned_data[name] for name in form.changed_data}
            voice = Voice.objects.get(pk=form.instance.pk)
            version = submit.update_voice(voice, by=by, changes=changes, clips=clips)
        else:
            voice = submit.create_voice(**form.cleaned_data, by=by, clips=clips, owner=request.user)
            version = voice.current_version
            form.instance.pk = voice.pk
        if version is not None:
            self.message_user(request, "The clips were saved and are being encoded.", messages.INFO)

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> Any:
        """Note what changed on the voice; its versions are noted by themselves."""
        return super().construct_change_message(request, form, [], add)


NEW_ROWS = 2  # for names of one's own


@admin.register(VoiceAlias)
class VoiceAliasAdmin(NounAdmin):
    """The names that clients of other services have built in, and names of one's own."""

    allowed = ("view", "add", "change", "delete")

    def get_urls(self) -> list[Any]:
        page = self.admin_site.admin_view(self.names_page)
        return [path("", page, name="voices_voicealias_changelist")]

    def names_page(self, request: HttpRequest) -> HttpResponse:
        """Show the form of all names, or save it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        user: AbstractBaseUser = request.user  # type: ignore[assignment]  # logged in
        voices = list(visible_voices(user).order_by("name"))
        shown = VoiceAlias.objects.filter(voice__in=voices)
        chosen = {alias.name: str(alias.voice_id) for alias in shown}
        names = [*WELL_KNOWN, *sorted(set(chosen) - set(WELL_KNOWN))]
        rows = self._rows(request, names, chosen, voices, _defaults(user))
        if request.method == "POST":
            if not self.has_change_permission(request):
                raise PermissionDenied
            if rows.is_valid():
                self._save(rows, shown)
                self.message_user(request, "The names were saved.", messages.SUCCESS)
                return HttpResponseRedirect(request.path)
        context = {"rows": rows, "may_change": self.has_change_permission(request)}
        return self.render_page(request, "voices/names.html", "Voice names", context)

    def _rows(
        self,
        request: HttpRequest,
        names: list[str],
        chosen: dict[str, str],
        voices: list[Voice],
        defaults: dict[str, str],
    ) -> Any:
        sent = sent_names(voices)
        labels = [(str(voice.pk), _label(voice, sent[voice])) for voice in voices]
        make = formset_factory(
            AliasRow, formset=AliasRows, extra=NEW_ROWS, max_num=len(names) + NEW_ROWS
        )
        return make(
            request.POST if request.method == "POST" else None,
            initial=[{"name": name, "voice": chosen.get(name, "")} for name in names],
            form_kwargs={
                "voices": labels,
                "defaults": defaults,
                "namesakes": {voice.name.lower() for voice in voices},
            },
            prefix="names",
        )

    @transaction.atomic
    def _save(self, rows: Any, shown: Any) -> None:
        """Make the aliases that the form shows those that it says; others are another user's."""
        said = {row.cleaned_data["name"]: row.cleaned_data["voice"] for row in rows.forms}
        kept = {name: voice for name, voice in said.items() if name and voice}
        shown.exclude(name__in=kept).delete()
        for name, voice in kept.items():
            VoiceAlias.objects.update_or_create(name=name, defaults={"voice_id": voice})


def _label(voice: Voice, sent: str) -> str:
    owner = f" ({sent[:8]})" if sent != voice.name else ""
    is_private = not voice.shared and voice.owner_id is not None
    return f"{voice.name}{owner}" + (" (not shared)" if is_private else "")


def _defaults(user: AbstractBaseUser) -> dict[str, str]:
    """Return the names of the voices that well-known names mean where nothing else is said."""
    voices = list(default_voices(user)[: len(WELL_KNOWN)])
    return dict(zip(WELL_KNOWN, cycle(voice.name for voice in voices), strict=False))
