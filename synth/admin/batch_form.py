"""The form that queues a JSONL file of texts in the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.files.uploadedfile import UploadedFile
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminSelectWidget

from synth.api.batches.reading import told_errors
from synth.api.batches.requests import REJECT, SKIP
from synth.batches.entries import entries_of_lines
from synth.batches.planning import BatchOptions, BatchRejectedError, PlannedBatch, check_batch
from synth.formats import FORMATS
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BatchJob, RenderJob
from ttsweb.counted import counted
from voices.access import visible_voices
from voices.models import Voice, VoiceVersion

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _BatchForm = forms.ModelForm[BatchJob]
    _VoiceField = forms.ModelChoiceField[Voice]
else:
    _BatchForm = forms.ModelForm
    _VoiceField = forms.ModelChoiceField

SHOWN_ERRORS = 20


class BatchForm(_BatchForm):
    """A file, and what holds for items that do not say otherwise.

    `user` is set on the class by the page; `planned` and `options` are there once it is valid.
    """

    user: AbstractBaseUser
    planned: PlannedBatch
    options: BatchOptions

    file = forms.FileField(
        widget=UnfoldAdminFileFieldWidget,
        allow_empty_file=True,
        help_text=(
            'JSONL in UTF-8, with one item on each line, such as {"custom_id": "a", "text": '
            '"Hello."}.'
        ),
    )
    voice = _VoiceField(
        queryset=Voice.objects.none(),
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text="Used for items that name no voice.",
    )
    format = forms.ChoiceField(
        choices=[(name, name) for name in FORMATS],
        widget=UnfoldAdminSelectWidget,
        help_text="Used for items that name no format.",
    )
    on_error = forms.ChoiceField(
        choices=[(REJECT, "queue nothing"), (SKIP, "queue the other lines")],
        widget=UnfoldAdminSelectWidget,
        label="If a line is invalid",
    )
    priority = forms.TypedChoiceField(
        choices=RenderJob.Priority.choices,
        initial=RenderJob.Priority.BULK,
        coerce=lambda value: RenderJob.Priority(int(value)),
        widget=UnfoldAdminSelectWidget,
    )

    class Meta:
        model = BatchJob
        fields = ("format", "priority")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        voices = visible_voices(self.user).filter(versions__status=VoiceVersion.Status.READY)
        field = self.fields["voice"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = voices.distinct()
        field.empty_label = "As each item says"

    def clean(self) -> dict[str, Any]:
        """Look at every line as a submission would."""
        cleaned = dict(super().clean() or {})
        if self.errors:
            return cleaned
        defaults = {"format": cleaned["format"]}
        if cleaned["voice"] is not None:
            defaults["voice"] = str(cleaned["voice"].pk)
        self.options = BatchOptions(priority=cleaned["priority"], defaults=defaults)
        try:
            self.planned = self._plan(cleaned["file"], skip_bad=cleaned["on_error"] == SKIP)
        except SubmitRejectedError as error:
            self.add_error("file", forms.ValidationError(str(error), code=error.code))
        except BatchRejectedError as error:
            for told in told_errors(error)[:SHOWN_ERRORS]:
                self.add_error("file", forms.ValidationError(told["detail"], code=told["code"]))
            summary = f"{len(error.bad)} of {counted(error.num_items, 'item')} cannot be rendered."
            self.add_error("file", forms.ValidationError(summary, code="batch_items_invalid"))
        return cleaned

    def _plan(self, file: UploadedFile[bytes], *, skip_bad: bool) -> PlannedBatch:
        file.seek(0)
        entries = entries_of_lines(file, max_items=settings.MAX_BATCH_ITEMS)
        return check_batch(entries, self.options, owner=self.user, skip_bad=skip_bad)

    def _post_clean(self) -> None:
        """Build no row from the fields: a submission makes it."""
