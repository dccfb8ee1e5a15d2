"""The fields of the job's form that are made of the options' declarations, and those of clips."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
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

from synth.admin.job_form_clips import ACCEPT, SpeakerClipsField, new_clip, read_clip
from synth.admin.job_form_lines import read_entries, read_lexicons, read_pauses
from synth.contract import Limits
from synth.models import RenderJob
from synth.options.fields import MAX_SECONDS
from synth.options.job_options import OPTIONS, Option, Value
from synth.options.language_tags import MAX_TAG_CHARS, language_tag
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
        """Return what was read."""
        return self._read(super().clean(value))


class LanguageTagField(forms.CharField):
    """Take a language tag."""

    def clean(self, value: Any) -> str:
        """Return the tag as it is usually spelled; refuse what is none."""
        text: str = super().clean(value)
        tag = language_tag(text) if text else ""
        if tag is None:
            raise forms.ValidationError("Expected a language tag such as en, pt-BR or zh-Hant.")
        return tag


class MinutesField(forms.IntegerField):
    """Take minutes from now."""

    def clean(self, value: Any) -> Any:
        """Return the moment."""
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
        MinutesField,
        min_value=1,
        max_value=MAX_SECONDS // 60,
        widget=UnfoldAdminIntegerFieldWidget,
    ),
    Value.DURATION: partial(_select, _KEPT),
    Value.PAUSES: partial(LinesField, read=read_pauses, max_length=2000),
    Value.NAMES: partial(LinesField, read=read_lexicons, max_length=10_000),
    Value.ENTRIES: partial(LinesField, read=read_entries, max_length=_MOST_LINES_CHARS),
}


def rows_of(group: str) -> tuple[Any, ...]:
    """Return a group's fields row by row."""
    rows: list[tuple[str, ...]] = []
    for one in OPTIONS.values():
        if one.group == group and one.beside and rows:
            rows[-1] += (one.form_name,)
        elif one.group == group:
            rows.append((one.form_name,))
    return tuple(row if len(row) > 1 else row[0] for row in rows)


if TYPE_CHECKING:  # Django's own class takes no type arguments while running
    _JobForm = forms.ModelForm[RenderJob]
else:
    _JobForm = type(forms.ModelForm)(
        "_JobForm",
        (forms.ModelForm,),
        {one.form_name: form_field(one) for one in OPTIONS.values()},
    )


class OptionsForm(_JobForm):
    """A field for each of `OPTIONS`, and for clips that come with the job."""

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
    CLIPS = ("reference_audio", "reference_text", "speaker_clips")

    def clean_reference_audio(self) -> bytes | None:
        """Return the bytes of a clip, if one was chosen."""
        file = self.cleaned_data["reference_audio"]
        return None if file is None else read_clip(file)

    def reference_of(self, cleaned: dict[str, Any]) -> NewClip | None:
        """Take the clip's fields out of the form's values, and return the clip, if there is one."""
        content, text = cleaned.pop("reference_audio", None), cleaned.pop("reference_text", "")
        if content is None:
            if text.strip() and "reference_audio" not in self.errors:
                self.add_error(
                    "reference_audio",
                    forms.ValidationError(
                        "Choose the clip in which these words are spoken.", code="clip_required"
                    ),
                )
            return None
        try:
            return new_clip(content, text)
        except forms.ValidationError as error:
            self.add_error("reference_text", error)
            return None
