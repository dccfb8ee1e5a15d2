"""The fields of the job's form that few jobs need: clip, pauses, lexicons, webhook and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from synth.admin_form_clips import ACCEPT, SpeakerClipsField, new_clip, read_clip
from synth.admin_form_lines import read_entries, read_lexicons, read_pauses
from synth.job_options import MOST_RETAKES
from synth.models import RenderJob
from synth.text.pauses import PAUSE_NAMES
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
        allow_empty_file=True,  # said of it in the words of all clips
        widget=UnfoldAdminFileFieldWidget(attrs={"accept": ACCEPT}),
        label="Clip in place of a voice",
        help_text="3 to 30 seconds of speech, for this job alone; leave the voice empty then.",
    )
    reference_text = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        label="What is said in the clip",
    )
    speaker_clips = SpeakerClipsField(
        required=False,
        label="Clips of further speakers",
        help_text="For this job alone, in place of voices: 1 speaks what follows <|speaker:1|>.",
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
        "speaker_clips",
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
        return None if file is None else read_clip(file)

    def reference_of(self, cleaned: dict[str, Any]) -> NewClip | None:
        """Take the clip's fields out of the form's values, and return the clip, if there is one."""
        content, text = cleaned.pop("reference_audio", None), cleaned.pop("reference_text", "")
        if content is None:
            if text.strip() and "reference_audio" not in self.errors:
                self.add_error(
                    "reference_audio",
                    forms.ValidationError(
                        "Choose the clip in which this is said.", code="clip_required"
                    ),
                )
            return None
        try:
            return new_clip(content, text)
        except forms.ValidationError as error:
            self.add_error("reference_text", error)
            return None
