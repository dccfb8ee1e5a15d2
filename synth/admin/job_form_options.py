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

from synth.admin.job_form_clips import ACCEPT, SpeakerClipsField, new_clip, read_clip
from synth.admin.job_form_lines import read_entries, read_lexicons, read_pauses
from synth.models import RenderJob
from synth.options.job_options import MOST_RETAKES
from synth.text.pauses import PAUSE_NAMES
from voices.submit import NewClip

if TYPE_CHECKING:  # Django's own class takes no type arguments while running
    _JobForm = forms.ModelForm[RenderJob]
else:
    _JobForm = forms.ModelForm

_MOST_LINES_CHARS = 600_000  # of the entries of a job, with room for what is in brackets


class MoreOptionsForm(_JobForm):
    """The options that few jobs need."""

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
    pauses = forms.CharField(
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="In milliseconds, one a line, such as sentence = 400. Names: "
        f"{', '.join(PAUSE_NAMES)}.",
    )
    lexicons = forms.CharField(
        required=False,
        max_length=10_000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Names of lexicons, one a line, besides those that always apply. The first one "
        "takes precedence.",
    )
    lexicon = forms.CharField(
        required=False,
        max_length=_MOST_LINES_CHARS,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        label="Pronunciations for this job only",
        help_text=(
            "One entry a line, such as Nguyen = Win. A line may begin with [literal], [regex], "
            "[case] or [language de], or with several of them: [regex, case]."
        ),
    )
    max_retakes = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_RETAKES,
        widget=UnfoldAdminIntegerFieldWidget,
        label="Retakes",
        help_text=(
            "How often a take that sounds wrong is rendered again, at most: 0 to "
            f"{MOST_RETAKES}. Empty: the server's setting."
        ),
    )
    webhook = forms.CharField(
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextInputWidget,
        help_text="URL that gets a message when the job has ended.",
    )
    live = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        label="Live audio",
        help_text="Makes the audio available to listeners while it is rendered.",
    )

    CLIPS = ("reference_audio", "reference_text", "speaker_clips")
    WORDS = (("lexicons", "lexicon"),)

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
                        "Choose the clip in which these words are spoken.", code="clip_required"
                    ),
                )
            return None
        try:
            return new_clip(content, text)
        except forms.ValidationError as error:
            self.add_error("reference_text", error)
            return None
