"""The forms of lexicons in the admin: they check what the API checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from synth.lexicons.access import visible_lexicons
from synth.lexicons.keeping import MAX_INDEX, check_entry
from synth.models import Lexicon, LexiconEntry
from synth.options.language_tags import language_tag
from synth.text.rules import RuleError
from voices.access import visible_voices

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _LexiconForm = forms.ModelForm[Lexicon]
    _EntryForm = forms.ModelForm[LexiconEntry]
else:
    _LexiconForm = _EntryForm = forms.ModelForm


def _clean_language(form: Any) -> str:
    """Return a form's language tag, spelled the usual way."""
    given = form.cleaned_data["language"].strip()
    tag = language_tag(given) if given else ""
    if tag is None:
        raise forms.ValidationError("Expected a language tag such as en, pt-BR or zh-Hant.")
    return tag


class LexiconForm(_LexiconForm):
    """A lexicon; `user` is set on the class by the page."""

    user: AbstractBaseUser

    class Meta:
        model = Lexicon
        fields = ("name", "scope", "voice", "language", "enabled")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields.get("voice")
        if isinstance(field, forms.ModelChoiceField):
            field.queryset = visible_voices(self.user)

    def clean_language(self) -> str:
        """Refuse what is no tag."""
        return _clean_language(self)

    def clean(self) -> dict[str, Any]:
        """Hold scope and voice together, and the name against the user's others."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        scope, voice = values.get("scope"), values.get("voice")
        if scope == Lexicon.Scope.VOICE and voice is None:
            self.add_error("voice", "Choose a voice: a lexicon of the scope voice needs one.")
        if scope != Lexicon.Scope.VOICE and voice is not None:
            self.add_error(
                "voice",
                "Leave the voice empty, or choose the scope voice: only that scope has a voice.",
            )
        is_new = self.instance._state.adding
        owner = Q(owner_id=self.user.pk if is_new else self.instance.owner_id)
        others = visible_lexicons(self.user).filter(owner, name__iexact=values.get("name", ""))
        if others.exclude(pk=self.instance.pk).exists():
            self.add_error("name", "Another lexicon has this name; choose another name.")
        return values


class EntryForm(_EntryForm):
    """An entry; without an index it comes behind the others."""

    index = forms.IntegerField(
        required=False, min_value=0, max_value=MAX_INDEX, widget=UnfoldAdminIntegerFieldWidget
    )

    class Meta:
        model = LexiconEntry
        fields = ("index", "find", "say", "kind", "case_sensitive", "language", "enabled")
        widgets: ClassVar = {
            "find": UnfoldAdminTextInputWidget,
            "say": UnfoldAdminTextInputWidget,
            "language": UnfoldAdminTextInputWidget,
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            self.initial["index"] = None
        for name, field in self.fields.items():  # a table's headings are no labels of its inputs
            field.widget.attrs["aria-label"] = name.replace("_", " ")
        for name in ("find", "say"):
            field = self.fields[name]
            if isinstance(field, forms.CharField):
                field.strip = False

    def clean_language(self) -> str:
        """Refuse what is no tag."""
        return _clean_language(self)

    def clean(self) -> dict[str, Any]:
        """Refuse a rule that the API would refuse."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors or values.get("DELETE"):
            return values
        try:
            rule = check_entry(values)
        except RuleError as error:
            self.add_error(error.attr, error.message)
            return values
        return values | {"find": rule.find, "say": rule.say}


class PreviewForm(forms.Form):
    """A text to try a lexicon on."""

    text = forms.CharField(
        strip=False, widget=UnfoldAdminTextareaWidget(attrs={"rows": 4, "required": True})
    )


class ImportForm(forms.Form):
    """A file of entries, and what becomes of those that are there."""

    file = forms.FileField(
        allow_empty_file=True,
        widget=UnfoldAdminFileFieldWidget(
            attrs={
                "accept": ".csv,.pls,.xml,text/csv,application/pls+xml",
                "aria-label": "CSV or PLS file",
                "id": "tts-lexicon-file",
            }
        ),
    )
    mode = forms.ChoiceField(choices=[("append", "add to the entries"), ("replace", "replace all")])
