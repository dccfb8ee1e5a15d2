"""The fields of the job's form that few jobs need: clip, pauses, lexicons, webhook and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from synth.admin_form_lines import read_entries, read_lexicons, read_pauses
from synth.job_options import MOST_RETAKES
from synth.models import RenderJob
from synth.text.pauses import PAUSE_NAMES
from voices.clip_checks import ClipRejectedError, check_clip, check_transcript, too_large
from voices.submit import NewClip

if TYPE_CHECKING:  # Django's own class takes no type arguments while running
    _JobForm = forms.ModelForm[RenderJob]
else:
    _JobForm = forms.ModelForm

_MOST_LINES_CHARS = 600_000  # of the entries of a job, with room for what is in brackets


class MoreOptionsForm(_JobForm):
    """What a job may be told beside what the page asks for first."""

    reference_audio = forms.FileField(
        required=False,
        widget=UnfoldAdminFileFieldWidget,
        label="Clip in place of a voice",
        help_text="3 to 30 seconds of speech, for this job alone; leave the voice empty then.",
    )
    reference_text = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        label="What is said in the clip",
    )
    pauses = forms.CharField(
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=f"In ms, a line for each, such as sentence = 400: {', '.join(PAUSE_NAMES)}.",
    )
    lexicons = forms.CharField(
        required=False,
        max_length=10_000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Names of lexicons beside those that always hold, one a line; first ones first.",
    )
    lexicon = forms.CharField(
        required=False,
        max_length=_MOST_LINES_CHARS,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        label="Words of this job",
        help_text="A line for each, such as Nguyen = Win. In front may stand [literal], [regex], "
        "[case] or [language de], or several: [regex, case].",
    )
    max_retakes = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_RETAKES,
        widget=UnfoldAdminIntegerFieldWidget,
        label="Further takes",
        help_text=f"How often a suspicious take is rendered again, 0 to {MOST_RETAKES}. Empty: as "
        "the settings say.",
    )
    webhook = forms.CharField(
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextInputWidget,
        help_text="URL that is told when the job has ended.",
    )
    live = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        label="Ready to be heard while it is rendered",
    )

    MORE = (
        "reference_audio",  # its box is wider than half a row
        "reference_text",
        ("pauses", "lexicons"),
        ("lexicon", "max_retakes"),
        ("webhook", "live"),
    )

    def clean_pauses(self) -> dict[str, int]:
        """Return the pauses by their names."""
        return read_pauses(self.cleaned_data["pauses"])

    def clean_lexicons(self) -> list[str]:
        """Return names or ids."""
        return read_lexicons(self.cleaned_data["lexicons"])

    def clean_lexicon(self) -> list[dict[str, Any]]:
        """Return the job's own entries."""
        return read_entries(self.cleaned_data["lexicon"])

    def clean_reference_audio(self) -> bytes | None:
        """Return the bytes of a clip, if one was chosen."""
        file = self.cleaned_data["reference_audio"]
        if file is None:
            return None
        try:
            if file.size > settings.MAX_CLIP_BYTES:  # before it is read into memory
                raise too_large()
            content: bytes = file.read()
            check_clip(content)
        except ClipRejectedError as error:
            raise forms.ValidationError(str(error), code=error.code) from error
        return content

    def reference_of(self, cleaned: dict[str, Any]) -> NewClip | None:
        """Take the clip's fields out of the form's values, and return the clip, if there is one."""
        content, text = cleaned.pop("reference_audio", None), cleaned.pop("reference_text", "")
        if content is None:
            if text.strip():
                self.add_error("reference_audio", "Choose the clip in which this is said.")
            return None
        try:
            return NewClip(check_transcript(text), content=content, container=check_clip(content))
        except ClipRejectedError as error:
            self.add_error("reference_text", forms.ValidationError(str(error), code=error.code))
            return None
