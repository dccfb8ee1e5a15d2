"""The form that queues a text in the admin."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from synth.admin_form_lines import read_speakers
from synth.admin_option_form import MoreOptionsForm
from synth.contract import MAX_TOP_K
from synth.file_options import MAX_BIT_RATE, MIN_BIT_RATE, SAMPLE_RATES
from synth.formats import FORMATS, MAX_SPEED, MIN_SPEED
from synth.job_options import MAX_LOUDNESS, MIN_LOUDNESS
from synth.language_tags import MAX_TAG_CHARS, language_tag
from synth.models import RenderJob
from synth.option_fields import MAX_SECONDS
from synth.rejections import SubmitRejectedError
from synth.submit import Order, check_order
from voices.access import visible_voices
from voices.models import Voice, VoiceVersion
from voices.submit import NewClip

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _VoiceField = forms.ModelChoiceField[Voice]
else:
    _VoiceField = forms.ModelChoiceField

_BY_CARD = "Empty: what the model's card says."
_DAY = 24 * 3600
_KEPT = (
    ("", "as the settings say"),
    (3600, "for an hour"),
    (_DAY, "for a day"),
    (7 * _DAY, "for a week"),
    (30 * _DAY, "for 30 days"),
    (365 * _DAY, "for a year"),
    (0, "for ever"),
)
# Where an order's fields have other names in the form.
_FIELD_OF = {
    "voices": "speakers",
    "deadline": "deadline_minutes",
    "retention": "retention_seconds",
    "reference": "reference_audio",
    "references": "speaker_clips",
    "voices.0": "voice",
    "references.0": "reference_audio",
}


class JobForm(MoreOptionsForm):
    """A text, a voice, a format; the rest may be left as it is.

    `user` is set on the class by the page; what is asked for is `order` once the form is valid.
    """

    user: AbstractBaseUser
    order: Order

    text = forms.CharField(
        strip=False, widget=UnfoldAdminTextareaWidget(attrs={"rows": 8}), help_text="To be spoken."
    )
    voice = _VoiceField(
        queryset=Voice.objects.none(), required=False, widget=UnfoldAdminSelectWidget
    )
    format = forms.ChoiceField(
        choices=[(name, name) for name in FORMATS], widget=UnfoldAdminSelectWidget
    )
    priority = forms.TypedChoiceField(
        choices=RenderJob.Priority.choices,
        coerce=lambda value: RenderJob.Priority(int(value)),
        widget=UnfoldAdminSelectWidget,
    )
    seed = forms.IntegerField(
        min_value=0,
        max_value=2**63 - 1,
        initial=0,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="The same seed and text give the same audio.",
    )
    temperature = forms.FloatField(
        required=False, widget=UnfoldAdminDecimalFieldWidget, help_text=_BY_CARD
    )
    top_p = forms.FloatField(
        required=False, widget=UnfoldAdminDecimalFieldWidget, help_text=_BY_CARD
    )
    top_k = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_TOP_K,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=_BY_CARD,
    )

    speakers = forms.CharField(
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        label="Further speakers",
        help_text="A line for each, such as 1 = Bob for <|speaker:1|> in the text. The voice above "
        "is speaker 0; clips of others are below.",
    )
    language = forms.CharField(
        required=False,
        max_length=MAX_TAG_CHARS,
        widget=UnfoldAdminTextInputWidget,
        help_text="Of the text: a tag such as en or pt-BR. Empty: the voice's.",
    )
    normalise = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        help_text="Spell out numbers and the like, by the text's language.",
    )
    sample_rate = forms.TypedChoiceField(
        required=False,
        choices=[("", "the model's own"), *((rate, f"{rate} Hz") for rate in SAMPLE_RATES)],
        coerce=int,
        empty_value=None,
        widget=UnfoldAdminSelectWidget,
    )
    bit_rate = forms.IntegerField(
        required=False,
        min_value=MIN_BIT_RATE,
        max_value=MAX_BIT_RATE,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Bits per second, such as 128000; for mp3, opus and aac.",
    )
    loudness = forms.FloatField(
        required=False,
        min_value=MIN_LOUDNESS,
        max_value=MAX_LOUDNESS,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text=f"LUFS of the whole file, {MIN_LOUDNESS} to {MAX_LOUDNESS}. Empty: as it comes.",
    )
    speed = forms.FloatField(
        required=False,
        min_value=MIN_SPEED,
        max_value=MAX_SPEED,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text=f"Pace of the file at the same pitch, {MIN_SPEED:g} to {MAX_SPEED:g}. Empty: 1.",
    )
    deadline_minutes = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_SECONDS // 60,
        widget=UnfoldAdminIntegerFieldWidget,
        label="Deadline",
        help_text="Minutes from now; what is not rendered by then is left out. Empty: none.",
    )
    retention_seconds = forms.TypedChoiceField(
        required=False,
        choices=_KEPT,
        coerce=int,
        empty_value=None,
        widget=UnfoldAdminSelectWidget,
        label="Kept after its end",
    )

    # What the page has in its fold, row by row.
    OPTIONS = (
        ("priority", "speakers"),
        ("language", "normalise"),
        ("sample_rate", "bit_rate"),
        ("loudness", "speed"),
        ("deadline_minutes", "retention_seconds"),
        *MoreOptionsForm.MORE,
        ("seed", "temperature"),
        ("top_p", "top_k"),
    )

    class Meta:
        model = RenderJob
        fields = (
            "text", "voice", "format", "priority", "speakers", "language", "normalise",
            "sample_rate", "bit_rate", "loudness", "speed", "deadline_minutes",
            "retention_seconds", "reference_audio", "reference_text", "speaker_clips", "pauses",
            "lexicons", "lexicon", "max_retakes", "webhook", "live", "seed", "temperature",
            "top_p", "top_k",
        )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        voices = visible_voices(self.user).filter(versions__status=VoiceVersion.Status.READY)
        field = self.fields["voice"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = voices.distinct()
        field.empty_label = "Choose a voice" if voices.exists() else "No voice is ready yet"

    def clean_temperature(self) -> float | None:
        """Refuse a temperature that the engine would refuse."""
        value: float | None = self.cleaned_data["temperature"]
        if value is not None and not 0 < value < 2:
            raise forms.ValidationError("Expected a number greater than 0 and less than 2.")
        return value

    def clean_top_p(self) -> float | None:
        """Refuse a share that is none."""
        value: float | None = self.cleaned_data["top_p"]
        if value is not None and not 0 < value <= 1:
            raise forms.ValidationError("Expected a number greater than 0 and up to 1.")
        return value

    def clean_language(self) -> str:
        """Refuse what is no language tag."""
        value: str = self.cleaned_data["language"]
        tag = language_tag(value) if value else ""
        if tag is None:
            raise forms.ValidationError("Expected a language tag such as en, pt-BR or zh-Hant.")
        return tag

    def clean_speakers(self) -> dict[int, str]:
        """Return the further speakers' voices by their numbers."""
        return read_speakers(self.cleaned_data["speakers"])

    def clean(self) -> dict[str, Any]:
        """Look at text, voices and options as a submission would."""
        cleaned = dict(super().clean() or {})
        reference = self.reference_of(cleaned)
        speaks = ("voice", "speakers", "speaker_clips")
        bad = self.errors.keys() & {*speaks, "reference_audio", "reference_text"}
        if not reference and not bad and not any(cleaned.get(name) for name in speaks):
            sentence = "A voice is required, unless a clip comes in its place."
            self.add_error("voice", forms.ValidationError(sentence, code="voice_required"))
        if not self.errors:
            self.order = _order_of(cleaned, reference)
            self._check_order()
        return cleaned

    def _check_order(self) -> None:
        """Name the field that speaks against what is asked for as a whole."""
        try:
            check_order(self.order, owner=self.user)
        except SubmitRejectedError as error:
            attr = ".".join((error.attr or "").split(".")[:2])
            name = attr.partition(".")[0]
            name = _FIELD_OF.get(attr) or _FIELD_OF.get(name, name)
            field = name if name in self.fields else None
            self.add_error(field, forms.ValidationError(str(error), code=error.code))

    def _post_clean(self) -> None:
        """Build no row from the fields: a submission makes it."""


def _order_of(cleaned: dict[str, Any], reference: NewClip | None) -> Order:
    """Return the order of a form's values."""
    values = dict(cleaned)
    voice, minutes = values.pop("voice"), values.pop("deadline_minutes")
    voices, references = values.pop("speakers"), values.pop("speaker_clips")
    values["speed"] = 1.0 if values["speed"] is None else values["speed"]
    values["webhook_url"] = values.pop("webhook")
    if voices or references:
        values["voices"] = {0: voice, **voices} if voice else voices
        values["references"] = {0: reference, **references} if reference else references
    else:
        values["voice"], values["reference"] = voice, reference
    if minutes is not None:
        values["deadline_at"] = timezone.now() + dt.timedelta(minutes=minutes)
    return Order(**values)
