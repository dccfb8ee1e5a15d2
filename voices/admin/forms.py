"""Forms of the voice page, with a row for each clip and its transcript, and of voice names."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms.formsets import DELETION_FIELD_NAME
from django.forms.models import BaseInlineFormSet
from django.urls import reverse
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminTextareaWidget

from voices.access import WELL_KNOWN
from voices.clip_checks import (
    CONTAINERS,
    ClipRejectedError,
    check_clip,
    check_transcript,
)
from voices.models import LANGUAGE_TAG, ReferenceClip, Voice, VoiceVersion
from voices.submit import NewClip

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _VoiceForm = forms.ModelForm[Voice]
    _VersionForm = forms.ModelForm[VoiceVersion]
    _VersionFormSet = BaseInlineFormSet[VoiceVersion, Voice, _VersionForm]
else:
    _VoiceForm = _VersionForm = forms.ModelForm
    _VersionFormSet = BaseInlineFormSet


class VoiceForm(_VoiceForm):
    """What is said of a voice; its clips are in the rows below it.

    `user` is set on the class by the page.
    """

    user: AbstractBaseUser

    class Meta:
        model = Voice
        fields = ("name", "language", "description", "shared", "cache_codes", "consent_statement")
        labels = {"cache_codes": "Keep codes in memory", "shared": "Share with all users"}  # noqa: RUF012  # Django's own form
        widgets = {  # noqa: RUF012  # Django's own form
            "description": UnfoldAdminTextareaWidget(attrs={"rows": 3}),
            "consent_statement": UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        }
        help_texts = {  # noqa: RUF012  # Django's own form
            "language": "A tag such as en or pt-BR; may be empty.",
            "shared": "All users may speak with the voice; only its owner may change it.",
            "cache_codes": "If it is off, workers read them from the storage for each job.",
            "consent_statement": (
                "How the speaker gave consent; stored with your name and the time."
            ),
        }

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        voice = self.instance
        owner_id = self.user.pk if voice._state.adding else voice.owner_id
        same = Voice.objects.filter(owner_id=owner_id, deleted_at=None, name__iexact=name)
        if same.exclude(pk=voice.pk).exists():
            sentence = "Another voice has this name; choose another name."
            raise ValidationError(sentence, code="voice_name_taken")
        return name

    def clean_language(self) -> str:
        language: str = self.cleaned_data["language"]
        if language and not LANGUAGE_TAG.fullmatch(language):
            raise ValidationError("Expected a language tag such as en or pt-BR.", code="invalid")
        return language


class ClipWidget(forms.Widget):
    """Carry the id of a clip that is there already, and show it with a player."""

    template_name = "voices/clip_widget.html"
    clips: dict[uuid.UUID, ReferenceClip]

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, value, attrs)
        clip = self.clips.get(_as_uuid(value))
        if clip is not None and clip.version.voice_id is not None:
            url = reverse("voice-audio", args=[clip.version.voice_id])
            measures = clip.stored.measures
            context |= {
                "clip": clip,
                "url": f"{url}?clip={clip.index}",
                "silence": round(100 * measures.get("silence_share", 0)),
                "clipped": round(100 * measures.get("clipped_share", 0), 2),
            }
        return context


class ClipRowForm(_VersionForm):
    """One clip: the one that is there or another one instead of it, and its transcript.

    `new_clip` is what a good row says.
    """

    clip = forms.UUIDField(label="Now", required=False, widget=ClipWidget)
    audio = forms.FileField(
        label="File",
        required=False,
        allow_empty_file=True,
        max_length=255,
        widget=UnfoldAdminFileFieldWidget(
            attrs={"accept": "audio/*," + ",".join(f".{name}" for name in CONTAINERS)}
        ),
        help_text=(
            "3 to 30 seconds of one speaker, without music: wav, flac, mp3, ogg, m4a or webm. "
            "Dropping several files makes several clips."
        ),
    )
    transcript = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Exactly the words that are spoken in the clip.",
    )

    class Meta:
        model = VoiceVersion
        fields = ()

    def __init__(
        self, *args: Any, clips: dict[uuid.UUID, ReferenceClip] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.clips = clips or {}
        self.new_clip: NewClip | None = None
        if not settings.TRANSCRIBER:
            self.fields["transcript"].help_text = (
                "Exactly the words that are spoken in the clip. No transcriber is set up here "
                "that could propose them."
            )
        widget = self.fields["clip"].widget
        assert isinstance(widget, ClipWidget)
        widget.clips = self.clips

    def has_changed(self) -> bool:
        """Count a row with a present clip as filled in, so that it is never skipped."""
        return bool(self.data.get(self.add_prefix("clip"))) or super().has_changed()

    def clean(self) -> dict[str, Any]:
        """Make `new_clip` of the row, or say which field is at fault."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        file, present = values.get("audio"), self.clips.get(_as_uuid(values.get("clip")))
        content: bytes | None = file.read() if file else None
        if content is None and present is None and not self.has_error("audio"):
            self.add_error("audio", "Choose a clip.")
        if content is not None:
            self._check("audio", check_clip, content)
        transcript = self._check("transcript", check_transcript, values.get("transcript") or "")
        if not self.errors:
            stored = present.stored if present is not None and content is None else None
            filename = file.name if file else getattr(present, "filename", "")
            self.new_clip = NewClip(transcript, filename, content=content, stored=stored)
        return values

    def _check(self, name: str, check: Callable[[Any], str], value: Any) -> str:
        """Return what a check makes of a field's value; a refusal is the field's error."""
        try:
            return check(value)
        except ClipRejectedError as error:
            self.add_error(name, ValidationError(str(error), code=error.code))
            return ""


class ClipRowFormSet(_VersionFormSet):
    """The rows of a voice: one for each clip of its newest version, and new ones.

    It saves nothing: `new_clips` is what the voice is to have, and saving is for the page.
    """

    def __init__(
        self,
        data: Any = None,
        files: Any = None,
        instance: Voice | None = None,
        queryset: QuerySet[VoiceVersion] | None = None,
        **kwargs: Any,
    ) -> None:
        version = instance.current_version if instance is not None and instance.pk else None
        rows = version.clips.select_related("stored", "version") if version else ()
        clips = {row.pk: row for row in rows}
        kwargs["form_kwargs"] = {"clips": clips}
        if data is None:
            kwargs["initial"] = [
                {"clip": clip.pk, "transcript": clip.transcript} for clip in clips.values()
            ]
        super().__init__(
            data, files, instance=instance, queryset=VoiceVersion.objects.none(), **kwargs
        )
        self.new_clips: list[NewClip] = []

    @classmethod
    def get_default_prefix(cls) -> str:
        return "clips"

    def initial_form_count(self) -> int:
        """Count every row as new: no row is a version that is there."""
        return 0

    def clean(self) -> None:
        super().clean()
        rows = [form for form in self.forms if isinstance(form, ClipRowForm)]
        kept = [row for row in rows if not row.cleaned_data.get(DELETION_FIELD_NAME)]
        if any(row.errors for row in kept):
            return
        self.new_clips = [row.new_clip for row in kept if row.new_clip is not None]
        limit = settings.MAX_CLIPS_PER_VOICE
        if not self.new_clips:
            raise ValidationError("A voice needs at least one clip.", code="clip_required")
        if len(self.new_clips) > limit:
            raise ValidationError(f"At most {limit} clips are allowed.", code="too_many_clips")


def _as_uuid(value: Any) -> uuid.UUID:
    """Return an id of a form, or one that no clip has."""
    try:
        return value if isinstance(value, uuid.UUID) else uuid.UUID(str(value))
    except ValueError:
        return uuid.UUID(int=0)


class AliasRow(forms.Form):
    """A name and the voice that it means; no voice: what it would mean anyway.

    Args:
        voices: ids and labels of those that may be chosen.
        defaults: names of the default voices, by well-known name.
        namesakes: names of voices, in lower case, before which a row does not matter.
    """

    name = forms.CharField(max_length=100, required=False)
    voice = forms.ChoiceField(required=False)

    def __init__(
        self,
        *args: Any,
        voices: list[tuple[str, str]],
        defaults: Mapping[str, str],
        namesakes: Collection[str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.empty_permitted = False  # a row as it was says as much as a changed one
        name = self["name"].value()
        default = defaults.get(name, "none yet") if name in WELL_KNOWN else ""
        choices = [("", f"Default: {default}" if default else "-"), *voices]
        self.fields["voice"].choices = choices  # type: ignore[attr-defined]  # of a choice field
        self.has_namesake = name in namesakes
        for field, title in (("name", "Name"), ("voice", f"Voice of {name or 'the new name'}")):
            attrs = {"class": "tts-input", "aria-label": title}
            self.fields[field].widget.attrs |= attrs

    def clean_name(self) -> str:
        return str(self.cleaned_data["name"]).strip().lower()

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        if found.get("voice") and not found.get("name"):
            raise ValidationError("Give a name to this row, or take its voice away.")
        return found


class AliasRows(forms.BaseFormSet):  # type: ignore[type-arg]  # none at run time
    def clean(self) -> None:
        names = [form.cleaned_data.get("name") for form in self.forms if form.is_valid()]
        given = [name for name in names if name]
        twice = sorted({name for name in given if given.count(name) > 1})
        if twice:
            raise ValidationError(f"{', '.join(twice)}: each name may stand here only once.")
