"""The form that queues a text in the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
)

from synth.admin.job_form_lines import read_speakers
from synth.admin.job_form_options import OptionsForm, rows_of
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.submit import Order, check_order
from synth.models import RenderJob
from synth.options.job_options import OPTIONS
from voices.access import visible_voices
from voices.models import Voice, VoiceVersion
from voices.submit import NewClip

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _VoiceField = forms.ModelChoiceField[Voice]
else:
    _VoiceField = forms.ModelChoiceField

# Where an order's fields have other names in the form.
_FIELD_OF = {
    "voices": "speakers",
    **{one.name: one.form_name for one in OPTIONS.values()},
    "reference": "reference_audio",
    "references": "speaker_clips",
    "voices.0": "voice",
    "references.0": "reference_audio",
}


class JobForm(OptionsForm):
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
    # The page's groups: their titles, and their fields row by row. The first is open, the others
    # are folded: few jobs need them.
    GROUPS = (
        ("Text and voice", ("text", ("voice", "format"))),
        ("More speakers and clips", ("speakers", *OptionsForm.CLIPS)),
        *(
            (group, rows_of(group))
            for group in dict.fromkeys(one.group for one in OPTIONS.values())
            if group != "Text and voice"
        ),
    )

    class Meta:
        model = RenderJob
        fields = (
            "text", "voice", "speakers", *OptionsForm.CLIPS,
            *(one.form_name for one in OPTIONS.values()),
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
