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

from synth.admin.job_form_lines import read_speakers
from synth.admin.job_form_options import MoreOptionsForm
from synth.contract import MAX_TOP_K
from synth.formats import FORMATS, MAX_SPEED, MIN_SPEED
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.submit import Order, check_order
from synth.models import RenderJob
from synth.options.fields import MAX_SECONDS
from synth.options.file_options import MAX_BIT_RATE, MIN_BIT_RATE, SAMPLE_RATES
from synth.options.job_options import MAX_LOUDNESS, MIN_LOUDNESS
from synth.options.language_tags import MAX_TAG_CHARS, language_tag
from voices.access import visible_voices
from voices.models import Voice, VoiceVersion
from voices.submit import NewClip

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _VoiceField = forms.ModelChoiceField[Voice]
else:
    _VoiceField = forms.ModelChoiceField

_BY_CARD = "Empty: the model's default."
_DAY = 24 * 3600
_KEPT = (
    ("", "the server's setting"),
    (3600, "an hour"),
    (_DAY, "a day"),
    (7 * _DAY, "a week"),
    (30 * _DAY, "30 days"),
    (365 * _DAY, "a year"),
    (0, "forever"),
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
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8}),
        help_text="The text to speak.",
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
        help_text="The same seed, text and voice give the same audio. Another seed gives another "
        "take.",
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
        label="More speakers",
        help_text="One speaker a line: 1 = Bob lets the voice Bob speak the text after "
        "<|speaker:1|>. The voice above is speaker 0.",
    )
    language = forms.CharField(
        required=False,
        max_length=MAX_TAG_CHARS,
        widget=UnfoldAdminTextInputWidget,
        help_text="Language of the text, a tag such as en or pt-BR. Empty: the voice's language.",
    )
    normalise = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        label="Spell out numbers",
        help_text="Numbers, dates and abbreviations are spoken as words in the text's language.",
    )
    sample_rate = forms.TypedChoiceField(
        required=False,
        choices=[("", "the model's rate"), *((rate, f"{rate} Hz") for rate in SAMPLE_RATES)],
        coerce=int,
        empty_value=None,
        widget=UnfoldAdminSelectWidget,
    )
    bit_rate = forms.IntegerField(
        required=False,
        min_value=MIN_BIT_RATE,
        max_value=MAX_BIT_RATE,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="In bits per second, such as 128000. For mp3, opus and aac only.",
    )
    loudness = forms.FloatField(
        required=False,
        min_value=MIN_LOUDNESS,
        max_value=MAX_LOUDNESS,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text=(
            f"Loudness of the whole file, {MIN_LOUDNESS} to {MAX_LOUDNESS} LUFS. Empty: not "
            "changed."
        ),
    )
    speed = forms.FloatField(
        required=False,
        min_value=MIN_SPEED,
        max_value=MAX_SPEED,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text=f"{MIN_SPEED:g} to {MAX_SPEED:g}; the pitch does not change. Empty: 1.",
    )
    deadline_minutes = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_SECONDS // 60,
        widget=UnfoldAdminIntegerFieldWidget,
        label="Deadline",
        help_text=(
            "In minutes from now. Text that is not rendered by then is left out. Empty: no "
            "deadline."
        ),
    )
    retention_seconds = forms.TypedChoiceField(
        required=False,
        choices=_KEPT,
        coerce=int,
        empty_value=None,
        widget=UnfoldAdminSelectWidget,
        label="Keep the job for",
    )

    # The page's groups: their titles, and their fields row by row. The first is open, the others
    # are folded: few jobs need them.
    GROUPS = (
        ("Text and voice", ("text", ("voice", "format"))),
        ("More speakers and clips", ("speakers", *MoreOptionsForm.CLIPS)),
        ("Pronunciation", (("language", "normalise"), *MoreOptionsForm.WORDS)),
        ("Audio file", (("sample_rate", "bit_rate"), ("loudness", "speed"), "pauses")),
        ("Takes", (("seed", "max_retakes"), ("temperature", "top_p"), "top_k")),
        (
            "Order, delivery and storage",
            (
                ("priority", "deadline_minutes"),
                ("retention_seconds", "webhook"),
                "live",
            ),
        ),
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
        voices = visible_voices(self.user).filter(
            versions__status=VoiceVersion.Status.READY, archived=False
        )
        field = self.fields["voice"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = voices.distinct()
        field.empty_label = (
            "Choose a voice" if voices.exists() else "No voice is ready: add one first"
        )

    def clean_temperature(self) -> float | None:
        """Refuse a temperature that the engine would refuse."""
        value: float | None = self.cleaned_data["temperature"]
        if value is not None and not 0 < value < 2:
            raise forms.ValidationError("Expected a number greater than 0 and less than 2.")
        return value

    def clean_top_p(self) -> float | None:
        """Refuse a `top_p` that the engine would refuse."""
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
            sentence = "Choose a voice, or add a clip to use instead of one."
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
