"""The form that queues a text in the admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
)

from synth.contract import MAX_TOP_K
from synth.formats import FORMATS
from synth.models import RenderJob
from synth.rejections import SubmitRejectedError
from synth.submit import Order, check_order
from voices.access import visible_voices
from voices.models import Voice, VoiceVersion

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _JobForm = forms.ModelForm[RenderJob]
    _VoiceField = forms.ModelChoiceField[Voice]
else:
    _JobForm = forms.ModelForm
    _VoiceField = forms.ModelChoiceField

_BY_CARD = "Empty: what the model's card says."


class JobForm(_JobForm):
    """A text, a voice, a format; the rest may be left as it is.

    `user` is set on the class by the page; what is asked for is `order` once the form is valid.
    """

    user: AbstractBaseUser
    order: Order

    text = forms.CharField(
        strip=False, widget=UnfoldAdminTextareaWidget(attrs={"rows": 8}), help_text="To be spoken."
    )
    voice = _VoiceField(queryset=Voice.objects.none(), widget=UnfoldAdminSelectWidget)
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

    class Meta:
        model = RenderJob
        fields = ("text", "voice", "format", "priority", "seed", "temperature", "top_p", "top_k")

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

    def clean(self) -> dict[str, Any]:
        """Look at text and voice as a submission would."""
        cleaned = dict(super().clean() or {})
        if not self.errors:
            self.order = Order(**cleaned)
            try:
                check_order(self.order, owner=self.user)
            except SubmitRejectedError as error:
                field = error.attr if error.attr in self.fields else None
                self.add_error(field, forms.ValidationError(str(error), code=error.code))
        return cleaned

    def _post_clean(self) -> None:
        """Build no row from the fields: a submission makes it."""
