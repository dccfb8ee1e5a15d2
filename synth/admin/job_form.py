"""The form that queues a text in the admin."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminFileFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from synth.admin.job_form_fields import (
    ACCEPT,
    SpeakerClipsField,
    new_clip,
    read_clip,
    read_entries,
    read_lexicons,
    read_pauses,
    read_speakers,
)
from synth.api.option_fields import MAX_SECONDS
from synth.contract import Limits
from synth.jobs.options import OPTIONS, Option, Value
from synth.jobs.planning import Order, Planner
from synth.models import RenderJob
from synth.text.languages import MAX_TAG_CHARS, language_tag
from ttsweb.refusals import SubmitRejectedError
from voices.access import offered_voices
from voices.models import Voice
from voices.submit import NewClip

_MOST_LINES_CHARS = 600_000  # of the entries of a job, with room for what is in brackets
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


class LinesField(forms.CharField):
    """Take what `read` makes of lines of text."""

    def __init__(self, *, read: Callable[[str], Any], rows: int = 3, **kwargs: Any) -> None:
        super().__init__(widget=UnfoldAdminTextareaWidget(attrs={"rows": rows}), **kwargs)
        self._read = read

    def clean(self, value: Any) -> Any:
        return self._read(super().clean(value))


class LanguageTagField(forms.CharField):
    def clean(self, value: Any) -> str:
        text: str = super().clean(value)
        tag = language_tag(text) if text else ""
        if tag is None:
            raise forms.ValidationError("Expected a language tag such as en, pt-BR or zh-Hant.")
        return tag


class MinutesField(forms.IntegerField):
    def clean(self, value: Any) -> Any:
        minutes = super().clean(value)
        return None if minutes is None else timezone.now() + dt.timedelta(minutes=minutes)


def form_field(one: Option) -> forms.Field:
    """Return the form's field of an option; an empty one leaves the option out."""
    more: dict[str, Any] = {
        "required": False, "label": one.label or None, "help_text": one.form_help,
    }  # fmt: skip
    if isinstance(one.value, Mapping):
        names = [(stored, name) for name, stored in one.value.items()]
        return forms.TypedChoiceField(
            choices=names,
            coerce={str(stored): stored for stored in one.value.values()}.__getitem__,
            empty_value=None,
            widget=UnfoldAdminSelectWidget,
            **more,
        )
    if one.choices:
        choices = [("", "the model's rate"), *((each, f"{each}{one.unit}") for each in one.choices)]
        return _select(choices, **more)
    if isinstance(one.value, Limits):
        return _number(one.value, **more)
    return _MAKERS[one.value](**more)


def _number(limits: Limits, **more: Any) -> forms.Field:
    def check(number: float) -> None:
        if not limits.holds(number):
            raise forms.ValidationError(f"Expected {limits.words}.")

    if limits.low_open or limits.high_open:
        return forms.FloatField(widget=UnfoldAdminDecimalFieldWidget, validators=[check], **more)
    more |= {"min_value": limits.low, "max_value": limits.high}
    if limits.whole:
        return forms.IntegerField(widget=UnfoldAdminIntegerFieldWidget, **more)
    return forms.FloatField(widget=UnfoldAdminDecimalFieldWidget, **more)


def _select(choices: Any, **more: Any) -> forms.Field:
    return forms.TypedChoiceField(
        choices=choices, coerce=int, empty_value=None, widget=UnfoldAdminSelectWidget, **more
    )


_MAKERS: dict[Value, Callable[..., forms.Field]] = {
    Value.SWITCH: partial(forms.BooleanField, widget=UnfoldBooleanWidget),
    Value.LANGUAGE: partial(
        LanguageTagField, max_length=MAX_TAG_CHARS, widget=UnfoldAdminTextInputWidget
    ),
    Value.URL: partial(forms.CharField, max_length=2000, widget=UnfoldAdminTextInputWidget),
    Value.MOMENT: partial(
        MinutesField, min_value=1, max_value=MAX_SECONDS // 60, widget=UnfoldAdminIntegerFieldWidget
    ),
    Value.DURATION: partial(_select, _KEPT),
    Value.PAUSES: partial(LinesField, read=read_pauses, max_length=2000),
    Value.NAMES: partial(LinesField, read=read_lexicons, max_length=10_000),
    Value.ENTRIES: partial(LinesField, read=read_entries, max_length=_MOST_LINES_CHARS),
}


def rows_of(group: str) -> tuple[Any, ...]:
    rows: list[tuple[str, ...]] = []
    for one in OPTIONS.values():
        if one.group == group and one.beside and rows:
            rows[-1] += (one.form_name,)
        elif one.group == group:
            rows.append((one.form_name,))
    return tuple(row if len(row) > 1 else row[0] for row in rows)


if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _VoiceField = forms.ModelChoiceField[Voice]
    _JobForm = forms.ModelForm[RenderJob]
else:
    _VoiceField = forms.ModelChoiceField
    _JobForm = type(forms.ModelForm)(
        "_JobForm", (forms.ModelForm,), {one.form_name: form_field(one) for one in OPTIONS.values()}
    )

_CLIPS = ("reference_audio", "reference_text", "speaker_clips")
# Where an order's fields have other names in the form.
_FIELD_OF = {
    "voices": "speakers",
    **{one.name: one.form_name for one in OPTIONS.values()},
    "reference": "reference_audio",
    "references": "speaker_clips",
    "voices.0": "voice",
    "references.0": "reference_audio",
}


class JobForm(_JobForm):
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
    speakers = forms.CharField(
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        label="More speakers",
        help_text="One speaker a line: 1 = Bob lets the voice Bob speak the text after "
        "<|speaker:1|>. The voice above is speaker 0.",
    )
    reference_audio = forms.FileField(
        required=False,
        allow_empty_file=True,  # said of it in the words of all clips
        widget=UnfoldAdminFileFieldWidget(attrs={"accept": ACCEPT}),
        label="Clip instead of a voice",
        help_text="3 to 30 seconds of speech, used for this job only. Leave the voice empty.",
    )
    reference_text = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        label="Words spoken in the clip",
    )
    speaker_clips = SpeakerClipsField(
        required=False,
        label="Clips of more speakers",
        help_text="Used for this job only, instead of voices. Speaker 1 speaks the text after "
        "<|speaker:1|>.",
    )
    # The page's groups: their titles, and their fields row by row. The first is open, the others
    # are folded: few jobs need them.
    GROUPS = (
        ("Text and voice", ("text", ("voice", "format"))),
        ("More speakers and clips", ("speakers", *_CLIPS)),
        *(
            (group, rows_of(group))
            for group in dict.fromkeys(one.group for one in OPTIONS.values())
            if group != "Text and voice"
        ),
    )

    class Meta:
        model = RenderJob
        fields = (
            "text", "voice", "speakers", *_CLIPS,
            *(one.form_name for one in OPTIONS.values()),
        )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        voices = offered_voices(self.user)
        field = self.fields["voice"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = voices
        field.empty_label = (
            "Choose a voice" if voices.exists() else "No voice is ready: add one first"
        )

    def clean_speakers(self) -> dict[int, str]:
        return read_speakers(self.cleaned_data["speakers"])

    def clean_reference_audio(self) -> bytes | None:
        file = self.cleaned_data["reference_audio"]
        return None if file is None else read_clip(file)

    def _take_reference(self, cleaned: dict[str, Any]) -> NewClip | None:
        """Take the clip's fields out of the form's values, and return the clip, if there is one."""
        content, text = cleaned.pop("reference_audio", None), cleaned.pop("reference_text", "")
        if content is None:
            if text.strip() and "reference_audio" not in self.errors:
                sentence = "Choose the clip in which these words are spoken."
                error = forms.ValidationError(sentence, code="clip_required")
                self.add_error("reference_audio", error)
            return None
        try:
            return new_clip(content, text)
        except forms.ValidationError as error:
            self.add_error("reference_text", error)
            return None

    def clean(self) -> dict[str, Any]:
        cleaned = dict(super().clean() or {})
        reference = self._take_reference(cleaned)
        speaks = ("voice", "speakers", "speaker_clips")
        bad = self.errors.keys() & {*speaks, "reference_audio", "reference_text"}
        if not reference and not bad and not any(cleaned.get(name) for name in speaks):
            sentence = "Choose a voice, or add a clip to use instead of one."
            self.add_error("voice", forms.ValidationError(sentence, code="voice_required"))
        if not self.errors:
            self.order = _order_of(cleaned, reference)
            try:
                Planner(self.user).plan(self.order)
            except SubmitRejectedError as error:  # name the field that speaks against the whole
                attr = ".".join((error.attr or "").split(".")[:2])
                name = attr.partition(".")[0]
                name = _FIELD_OF.get(attr) or _FIELD_OF.get(name, name)
                field = name if name in self.fields else None
                self.add_error(field, forms.ValidationError(str(error), code=error.code))
        return cleaned

    def _post_clean(self) -> None:
        """Build no row from the fields: a submission makes it."""


def _order_of(cleaned: dict[str, Any], reference: NewClip | None) -> Order:
    values: dict[str, Any] = {}
    for one in OPTIONS.values():
        if cleaned[one.form_name] not in (None, ""):
            values[one.column] = cleaned[one.form_name]
    voice, voices, references = cleaned["voice"], cleaned["speakers"], cleaned["speaker_clips"]
    if voices or references:
        values["voices"] = {0: voice, **voices} if voice else voices
        values["references"] = {0: reference, **references} if reference else references
    else:
        values["voice"], values["reference"] = voice, reference
    return Order(text=cleaned["text"], **values)
