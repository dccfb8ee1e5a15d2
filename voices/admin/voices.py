"""Manage voices in the admin: clips come in, versions are made, states are seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.forms import BaseModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm

from ttsweb.pages.admin_filters import NamedValuesFilter
from voices import submit
from voices.access import visible_voices
from voices.admin.forms import ClipRowFormSet, VoiceForm
from voices.admin.inlines import ClipInline, VersionInline
from voices.admin.ownership import OwnedVoicesAdmin
from voices.clip_checks import ClipRejectedError
from voices.models import Voice, VoiceVersion
from voices.removal import delete_voice
from voices.transitions import request_encoding

_OPEN = (VoiceVersion.Status.PENDING, VoiceVersion.Status.ENCODING)
_REFUSALS = (submit.VoiceNameTakenError, submit.VoiceDeletedError, ClipRejectedError, OSError)


@admin.register(Voice)
class VoiceAdmin(OwnedVoicesAdmin):
    """Voices: list, form, and the actions of encoding again and deleting."""

    form = VoiceForm
    list_display = (
        "name",
        "language",
        "status",
        "frames",
        "clip",
        "visibility",
        "last_used_at",
        "updated_at",
    )
    list_filter = ("archived", "shared", ("language", NamedValuesFilter))
    search_fields = ("name", "description")
    ordering = ("name",)
    actions = ("encode_again", "archive", "unarchive", "withdraw_consent", "renew_consent")
    list_before_template = "voices/import_form.html"
    change_form_outer_before_template = "voices/try_it.html"
    actions_detail = ("encode_this_again", "export_this")
    fieldsets = (
        (None, {"fields": ("state", "name", "language", "description", "shared", "cache_codes")}),
        (
            "Consent",
            {"fields": ("consent_statement", ("consent_by", "consent_at", "consent_withdrawn_at"))},
        ),
    )
    readonly_fields = ("state", "consent_by", "consent_at", "consent_withdrawn_at")

    class Media:
        js = tuple(
            f"ttsweb/{name}.js"
            for name in (
                "clip_report",
                "recorder",
                "clip_form",
                "try_it",
                "import_voice",
            )
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Voice]:
        """Return the voices that the user may see, each with its versions and clips."""
        return visible_voices(request.user).prefetch_related("versions__clips__stored")

    def get_inlines(self, request: HttpRequest, obj: Model | None) -> list[type[Any]]:
        """Show the history where there is one."""
        return [ClipInline, VersionInline] if obj is not None else [ClipInline]

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Leave out what a voice that is not there yet does not have."""
        if obj is not None:
            return self.fieldsets
        return (
            (None, {"fields": ("name", "language", "description", "shared", "cache_codes")}),
            ("Consent", {"fields": ("consent_statement",)}),
        )

    @display(description="status")
    def status(self, voice: Voice) -> SafeString:
        """Return the state of the newest version, as a badge that changes by itself."""
        return _state(voice, "voices/list_state.html")

    @admin.display(description="frames")
    def frames(self, voice: Voice) -> int:
        """Return how many frames the voice's codes have."""
        return voice.current_version.frames if voice.current_version else 0

    @admin.display(description="clip")
    def clip(self, voice: Voice) -> SafeString:
        """Return the first clip's waveform and a player that loads nothing before it is asked."""
        version = voice.current_version
        first = next(iter(version.clips.all()), None) if version else None
        if first is None:
            return SafeString("-")
        return SafeString(
            render_to_string(
                "voices/list_clip.html",
                {
                    "name": voice.name,
                    "peaks": first.stored.measures.get("peaks"),
                    "url": reverse("voice-audio", args=[voice.pk]),
                },
            )
        )

    @display(
        description="seen by",
        label={
            "consent withdrawn": "danger",
            "archived": "warning",
            "all": "info",
            "its owner": "success",
        },
    )
    def visibility(self, voice: Voice) -> str:
        """Return who can speak with it."""
        if voice.consent_withdrawn_at is not None:
            return "consent withdrawn"
        if voice.archived:
            return "archived"
        return "all" if voice.shared or voice.owner_id is None else "its owner"

    @admin.display(description="state")
    def state(self, voice: Voice) -> SafeString:
        """Return state, error, warnings and figures of the newest version."""
        return _state(voice, "voices/state.html")

    @action(description="Encode again", permissions=["change"])
    def encode_again(self, request: HttpRequest, voices: QuerySet[Voice]) -> None:
        """Run the encoder again for each chosen voice that does not wait for it already."""
        begun: list[Voice] = []
        waiting: list[Voice] = []
        for voice in self.own_of(request, voices):
            (begun if _encode(voice) else waiting).append(voice)
        if begun:
            self.message_user(request, f"Queued to be encoded again: {_names(begun)}.")
        if waiting:
            sentence = f"Already waiting to be encoded: {_names(waiting)}."
            self.message_user(request, sentence, messages.WARNING)

    @action(description="Archive", permissions=["change"])
    def archive(self, request: HttpRequest, voices: QuerySet[Voice]) -> None:
        """Take the chosen voices out of what is offered; nothing of them is lost."""
        self._set(request, voices, "archived", True, "now archived")

    @action(description="Restore from the archive", permissions=["change"])
    def unarchive(self, request: HttpRequest, voices: QuerySet[Voice]) -> None:
        """Offer the chosen voices again."""
        self._set(request, voices, "archived", False, "no longer archived")

    @action(description="Withdraw the consent", permissions=["change"])
    def withdraw_consent(self, request: HttpRequest, voices: QuerySet[Voice]) -> None:
        """Let the chosen voices say nothing from now on; jobs that need them end."""
        self._set(
            request, voices, "consent_withdrawn", True, "silenced, as the consent is withdrawn"
        )

    @action(description="Record that the speaker agrees again", permissions=["change"])
    def renew_consent(self, request: HttpRequest, voices: QuerySet[Voice]) -> None:
        """Let the chosen voices speak again after their consent was withdrawn."""
        self._set(request, voices, "consent_withdrawn", False, "allowed to speak again")

    def _set(
        self, request: HttpRequest, voices: QuerySet[Voice], name: str, value: bool, outcome: str
    ) -> None:
        """Change one thing of the chosen voices, and tell of how many it was another one before."""
        changed, by = 0, request.user.get_username()
        for voice in self.own_of(request, voices):
            was = voice.archived if name == "archived" else voice.consent_withdrawn_at is not None
            if was != value:
                submit.update_voice(voice, by=by, changes={name: value}, clips=None)
                changed += 1
        noun = "voice is" if changed == 1 else "voices are"
        self.message_user(request, f"{changed} {noun} {outcome}.")

    @action(
        description="Encode again",
        permissions=["change"],
        dialog={
            "title": "Encode again",
            "description": (
                "The encoder runs again on this voice's clips; jobs wait until it is done."
            ),
            "form_submit_text": "Encode",
        },
    )
    def encode_this_again(
        self, request: HttpRequest, form: BaseDialogForm, object_id: str
    ) -> HttpResponse:
        """Run the encoder again for the voice of this page."""
        voice = visible_voices(request.user).get(pk=object_id)
        self.encode_again(request, [voice])
        url = reverse("admin:voices_voice_change", args=[object_id])
        return HttpResponse(headers={"HX-Redirect": url})

    @action(description="Export", permissions=["view"])
    def export_this(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Download the voice of this page as one file, as the API gives it."""
        return HttpResponseRedirect(reverse("voice-export", args=[object_id]))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save; what is refused only while saving comes back as a message."""
        try:
            page: HttpResponse = super().changeform_view(
                request, object_id, form_url, extra_context
            )
            return page
        except _REFUSALS as error:
            text = str(error) if not isinstance(error, OSError) else f"Not saved: {error.strerror}."
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

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

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what the page lists before deleting: the voices, as rows of jobs stay."""
        names = [f"The voice {voice}, its clips and its codes" for voice in objs]
        allowed = all(self.has_delete_permission(request, voice) for voice in objs)
        return names, {"voices": len(names)}, set() if allowed else {"voice"}, []

    def delete_model(self, request: HttpRequest, obj: Voice) -> None:
        """Delete a voice, its bytes, and the queued work that needs it."""
        delete_voice(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Voice]) -> None:
        """Delete the chosen voices, each in the same way."""
        for voice in self.own_of(request, queryset):
            delete_voice(voice)


def _state(voice: Voice, template: str) -> SafeString:
    version = voice.current_version
    is_open = version is not None and version.status in _OPEN
    context = {"voice": voice, "version": version, "is_open": is_open}
    return SafeString(render_to_string(template, context))


def _encode(voice: Voice) -> bool:
    version = voice.current_version
    return version is not None and request_encoding(version)


def _names(voices: Sequence[Voice]) -> str:
    return ", ".join(voice.name for voice in voices)
