"""Manage lexicons in the admin: entries, files, and a preview of what would change."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.views.decorators.http import require_POST
from unfold.admin import ModelAdmin, TabularInline

from synth.admin.lexicon_form import EntryForm, ImportForm, LexiconForm, PreviewForm
from synth.api.jobs.preview_views import segment_rows
from synth.api.lexicons.transfer_views import exported
from synth.jobs.planning import Order
from synth.jobs.preview import preview_lexicons
from synth.jobs.rejections import SubmitRejectedError
from synth.lexicons import keeping
from synth.lexicons.access import may_change, visible_lexicons
from synth.lexicons.files import FileRefusedError
from synth.lexicons.importing import BadLinesError, import_entries
from synth.models import Lexicon, LexiconEntry
from ttsweb.counted import counted
from ttsweb.pages.admin_filters import NamedValuesFilter

_SHOWN_BAD_LINES = 10


class EntryInline(TabularInline):
    """The entries of a lexicon."""

    model = LexiconEntry
    form = EntryForm
    fields = ("index", "find", "say", "kind", "case_sensitive", "language", "enabled")
    ordering = ("index", "pk")
    extra = 1
    per_page = 50  # a lexicon may have thousands
    hide_title = True
    verbose_name_plural = "entries"


@admin.register(Lexicon)
class LexiconAdmin(ModelAdmin):
    """Lexicons of the user and everybody's; a superuser's are all."""

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

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lexicon]:
        """Return the lexicons that the user may see."""
        count = Count("entries", distinct=True)  # a search joins them once more
        return visible_lexicons(request.user).annotate(entries_count=count)

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the form for this user."""
        return super().get_form(
            request, obj, change, form=type("LexiconForm", (LexiconForm,), {"user": request.user}),
            **kwargs,
        )  # fmt: skip

    @admin.display(description="entries")
    def entries_total(self, lexicon: Any) -> int:
        """Return how many entries there are."""
        return int(lexicon.entries_count)

    @admin.display(description="owner")
    def whose(self, lexicon: Lexicon) -> str:
        """Return whose it is."""
        return str(lexicon.owner) if lexicon.owner else "everybody's"

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those change a lexicon who own it."""
        is_allowed: bool = super().has_change_permission(request, obj)
        return is_allowed and (not isinstance(obj, Lexicon) or may_change(request.user, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those delete a lexicon who own it."""
        is_allowed: bool = super().has_delete_permission(request, obj)
        return is_allowed and (not isinstance(obj, Lexicon) or may_change(request.user, obj))

    def save_model(self, request: HttpRequest, obj: Lexicon, form: Any, change: bool) -> None:
        """Save as the API would; what is new is the user's."""
        if not change:
            obj.owner_id = request.user.pk
        keeping.save_lexicon(obj, {})

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Save the entries as the API would."""
        formset.save(commit=False)
        for entry in formset.deleted_objects:
            keeping.delete_entry(entry)
        rows = {entry.pk: names for entry, names in formset.changed_objects}
        for entry_form in formset.forms:
            values = dict(entry_form.cleaned_data)
            if values.get("index") is None:
                values.pop("index", None)
            if entry_form.instance in formset.new_objects:
                keeping.add_entry(form.instance, values)
            elif entry_form.instance.pk in rows and not values.get("DELETE"):
                keeping.change_entry(entry_form.instance, values)
        formset.save_m2m()

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or save; what is refused only while saving comes back as a message."""
        context = {"import_form": ImportForm(), "preview_form": PreviewForm()}
        try:
            page: HttpResponse = super().changeform_view(
                request, object_id, form_url, {**context, **(extra_context or {})}
            )
            return page
        except keeping.LexiconError as error:
            self.message_user(request, error.message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())

    def get_urls(self) -> list[Any]:
        """Add the pages of files and of the preview."""
        wrap = self.admin_site.admin_view
        return [
            path("<uuid:pk>/preview/", wrap(self.preview_page), name="synth_lexicon_preview"),
            path(
                "<uuid:pk>/import/", wrap(require_POST(self.import_file)),
                name="synth_lexicon_import",
            ),
            path(
                "<uuid:pk>/export/<str:kind>/", wrap(self.export_file),
                name="synth_lexicon_export",
            ),
            *super().get_urls(),
        ]  # fmt: skip

    def export_file(self, request: HttpRequest, pk: uuid.UUID, kind: str) -> HttpResponse:
        """Download a lexicon as CSV or PLS."""
        if kind not in ("csv", "pls"):
            raise Http404
        return exported(self._find(request, pk), kind)

    def import_file(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Take a file, or say which of its lines are bad."""
        lexicon = self._find(request, pk)
        if not self.has_change_permission(request, lexicon):
            raise PermissionDenied
        form = ImportForm(request.POST, request.FILES)
        back = HttpResponseRedirect(reverse("admin:synth_lexicon_change", args=[pk]))
        if not form.is_valid():
            self.message_user(request, "Choose a CSV or PLS file.", messages.ERROR)
            return back
        try:
            done = import_entries(
                lexicon, form.cleaned_data["file"].read(), mode=form.cleaned_data["mode"]
            )
        except BadLinesError as error:
            for bad in error.lines[:_SHOWN_BAD_LINES]:
                text = f"Line {bad.line}{', ' + bad.attr if bad.attr else ''}: {bad.message}"
                self.message_user(request, text, messages.ERROR)
            self.message_user(request, "Nothing was changed.", messages.ERROR)
            return back
        except (FileRefusedError, keeping.LexiconError) as error:
            self.message_user(request, f"{error.message} Nothing was changed.", messages.ERROR)
            return back
        for warning in done.warnings:
            self.message_user(request, warning, messages.WARNING)
        self.message_user(request, f"Imported {counted(done.added, 'entry', 'entries')}.")
        return back

    def preview_page(self, request: HttpRequest, pk: uuid.UUID) -> HttpResponse:
        """Show which segments of a text the lexicon changes, and how."""
        lexicon = self._find(request, pk)
        form = PreviewForm(request.POST or None)
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": f"Changes made by {lexicon.name}",
            "lexicon": lexicon,
            "form": form,
            "opts": self.opts,
        }
        if form.is_valid():
            order = Order(
                text=form.cleaned_data["text"],
                lexicons=(str(lexicon.pk),),
                language=lexicon.language,
            )
            try:
                shown = preview_lexicons(order, owner=lexicon.owner)
            except SubmitRejectedError as error:
                form.add_error("text", str(error))
            else:
                rows = segment_rows(shown)
                changed = [row for row in rows if row["changes"]]
                context["segments"] = [row | {"parts": _parts(row)} for row in changed]
                context["total"] = len(rows)
        return TemplateResponse(request, "synth/lexicon_preview.html", context)

    def _find(self, request: HttpRequest, pk: uuid.UUID) -> Lexicon:
        """Return a lexicon that the user may see."""
        lexicon = visible_lexicons(request.user).filter(pk=pk).first()
        if lexicon is None:
            raise Http404
        if not self.has_view_permission(request, lexicon):
            raise PermissionDenied
        return lexicon


def _parts(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a segment's text in parts, each with what is said for it; empty where it stays."""
    parts: list[tuple[str, str]] = []
    place = 0
    for change in row["changes"]:
        parts.append((row["text"][place : change["start"]], ""))
        parts.append((change["found"], change["said"] or "nothing"))
        place = change["start"] + len(change["found"])
    return [*parts, (row["text"][place:], "")]
