"""Manage lexicons in the admin: entries, files, and a preview of what would change."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST
from unfold.admin import TabularInline
from unfold.widgets import (
    UnfoldAdminFileFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from synth.admin.job_form import LanguageTagField
from synth.api.jobs.views import segment_rows
from synth.api.lexicons import exported
from synth.jobs.planning import Order, Planner
from synth.lexicons import store
from synth.lexicons.book import find_visible_lexicons
from synth.lexicons.files import BadLinesError, FileRefusedError, import_entries
from synth.lexicons.store import MAX_INDEX, check_entry, may_change
from synth.models import Lexicon, LexiconEntry
from synth.text.rules import RuleError
from ttsweb.pages.admin_base import NamedValuesFilter, NounAdmin, column
from ttsweb.refusals import SubmitRejectedError, counted
from voices.access import visible_voices

if TYPE_CHECKING:  # Django's own classes take no type arguments while running
    _LexiconForm = forms.ModelForm[Lexicon]
    _EntryForm = forms.ModelForm[LexiconEntry]
else:
    _LexiconForm = _EntryForm = forms.ModelForm


_SHOWN_BAD_LINES = 10


class LexiconForm(_LexiconForm):
    """A lexicon; `user` is set on the class by the page."""

    user: AbstractBaseUser

    class Meta:
        model = Lexicon
        fields = ("name", "scope", "voice", "language", "enabled")
        field_classes: ClassVar = {"language": LanguageTagField}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields.get("voice")
        if isinstance(field, forms.ModelChoiceField):
            field.queryset = visible_voices(self.user)

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        scope, voice = values.get("scope"), values.get("voice")
        if scope == Lexicon.Scope.VOICE and voice is None:
            self.add_error("voice", "Choose a voice: a lexicon of the scope voice needs one.")
        if scope != Lexicon.Scope.VOICE and voice is not None:
            sentence = (
                "Leave the voice empty, or choose the scope voice: only that scope has a voice."
            )
            self.add_error("voice", sentence)
        is_new = self.instance._state.adding
        owner = Q(owner_id=self.user.pk if is_new else self.instance.owner_id)
        others = find_visible_lexicons(self.user).filter(owner, name__iexact=values.get("name", ""))
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
        field_classes: ClassVar = {"language": LanguageTagField}
        widgets: ClassVar = dict.fromkeys(("find", "say", "language"), UnfoldAdminTextInputWidget)

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

    def clean(self) -> dict[str, Any]:
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


class EntryInline(TabularInline):
    model = LexiconEntry
    form = EntryForm
    fields = ("index", "find", "say", "kind", "case_sensitive", "language", "enabled")
    ordering = ("index", "pk")
    extra = 1
    per_page = 50  # a lexicon may have thousands
    hide_title = True
    verbose_name_plural = "entries"


@admin.register(Lexicon)
class LexiconAdmin(NounAdmin):
    """Lexicons of the user and everybody's; a superuser's are all."""

    allowed = ("view", "add", "change", "delete")
    owned = staticmethod(may_change)
    pages = (
        ("preview", "preview/", "preview_page"),
        ("import", "import/", "import_file"),
        ("export", "export/<str:kind>/", "export_file"),
    )
    save_refusals = (store.LexiconError,)
    form = LexiconForm
    inlines = (EntryInline,)
    list_display = (
        "name", "scope", "voice", "language", "entries_total", "enabled", "whose", "updated_at",
    )  # fmt: skip
    list_filter = ("scope", "enabled", ("language", NamedValuesFilter))
    list_select_related = ("voice", "owner")
    search_fields = ("name", "entries__find")
    ordering = ("name",)
    fieldsets = ((None, {"fields": ("name", "enabled", "scope", "voice", "language")}),)
    change_form_outer_after_template = "synth/lexicon_tools.html"

    entries_total = column("entries", lambda lexicon: lexicon.entries_count)
    whose = column("owner", lambda lexicon: str(lexicon.owner or "everybody's"))

    @staticmethod
    def visible(user: Any) -> QuerySet[Lexicon]:
        count = Count("entries", distinct=True)  # a search joins them once more
        return find_visible_lexicons(user).annotate(entries_count=count)

    def save_model(self, request: HttpRequest, obj: Lexicon, form: Any, change: bool) -> None:
        """Save as the API would; what is new is the user's."""
        if not change:
            obj.owner_id = request.user.pk
        store.save_lexicon(obj, {})

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        formset.save(commit=False)
        for entry in formset.deleted_objects:
            store.delete_entry(entry)
        rows = {entry.pk: names for entry, names in formset.changed_objects}
        for entry_form in formset.forms:
            values = dict(entry_form.cleaned_data)
            if values.get("index") is None:
                values.pop("index", None)
            if entry_form.instance in formset.new_objects:
                store.add_entry(form.instance, values)
            elif entry_form.instance.pk in rows and not values.get("DELETE"):
                store.change_entry(entry_form.instance, values)
        formset.save_m2m()

    def page_context(self, request: HttpRequest, row: Lexicon) -> dict[str, Any]:
        return {"import_form": ImportForm()}

    def export_file(self, request: HttpRequest, pk: uuid.UUID, kind: str) -> HttpResponse:
        if kind not in ("csv", "pls"):
            raise Http404
        return exported(self.find_row(request, pk), kind)

    @method_decorator(require_POST)
    def import_file(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Take a file, or say which of its lines are bad."""
        lexicon = self.find_row(request, pk)
        if not self.has_change_permission(request, lexicon):
            raise PermissionDenied
        form = ImportForm(request.POST, request.FILES)
        back = HttpResponseRedirect(reverse("admin:synth_lexicon_change", args=[pk]))
        if not form.is_valid():
            self.message_user(request, "Choose a CSV or PLS file.", messages.ERROR)
            return back
        try:
            given = form.cleaned_data
            done = import_entries(lexicon, given["file"].read(), mode=given["mode"])
        except BadLinesError as error:
            for bad in error.lines[:_SHOWN_BAD_LINES]:
                text = f"Line {bad.line}{', ' + bad.attr if bad.attr else ''}: {bad.message}"
                self.message_user(request, text, messages.ERROR)
            self.message_user(request, "Nothing was changed.", messages.ERROR)
            return back
        except (FileRefusedError, store.LexiconError) as error:
            self.message_user(request, f"{error} Nothing was changed.", messages.ERROR)
            return back
        for warning in done.warnings:
            self.message_user(request, warning, messages.WARNING)
        self.message_user(request, f"Imported {counted(done.added, 'entry', 'entries')}.")
        return back

    def preview_page(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Show which segments of a text the lexicon changes, and how."""
        lexicon = self.find_row(request, pk)
        form = PreviewForm(request.POST or None)
        context: dict[str, Any] = {"lexicon": lexicon, "form": form}
        if form.is_valid():
            text, lexicons = form.cleaned_data["text"], (str(lexicon.pk),)
            order = Order(text=text, lexicons=lexicons, language=lexicon.language)
            try:
                shown = Planner(lexicon.owner).preview_lexicons(order)
            except SubmitRejectedError as error:
                form.add_error("text", str(error))
            else:
                rows = segment_rows(shown)
                changed = [row for row in rows if row["changes"]]
                context["segments"] = [row | {"parts": _parts(row)} for row in changed]
                context["total"] = len(rows)
        title = f"Changes made by {lexicon.name}"
        return self.render_page(request, "synth/lexicon_preview.html", title, context)


def _parts(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a segment's text in parts, each with what is said for it; empty where it stays."""
    parts: list[tuple[str, str]] = []
    place = 0
    for change in row["changes"]:
        parts.append((row["text"][place : change["start"]], ""))
        parts.append((change["found"], change["said"] or "nothing"))
        place = change["start"] + len(change["found"])
    return [*parts, (row["text"][place:], "")]
