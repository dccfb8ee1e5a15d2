"""Say in the admin which voices the names of other services' voices mean: one page, one form."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import cycle
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path

from ttsweb.pages.admin_base import NounAdmin
from voices.access import visible_voices
from voices.models import Voice, VoiceAlias
from voices.names import WELL_KNOWN, default_voices, sent_names

NEW_ROWS = 2  # for names of one's own


class AliasRow(forms.Form):
    """A name and the voice that it means; no voice: what it would mean anyway.

    Args:
        voices: ids and labels of those that may be chosen.
        defaults: names of the default voices, by well-known name.
        namesakes: names of voices, in lower case, before which a row does not matter.
    """

    name = forms.CharField(max_length=100, required=False)
    voice = forms.ChoiceField(required=False)

    def __init__(
        self,
        *args: Any,
        voices: list[tuple[str, str]],
        defaults: Mapping[str, str],
        namesakes: Collection[str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.empty_permitted = False  # a row as it was says as much as a changed one
        name = self["name"].value()
        default = defaults.get(name, "none yet") if name in WELL_KNOWN else ""
        choices = [("", f"Default: {default}" if default else "-"), *voices]
        self.fields["voice"].choices = choices  # type: ignore[attr-defined]  # of a choice field
        self.has_namesake = name in namesakes
        for field, title in (("name", "Name"), ("voice", f"Voice of {name or 'the new name'}")):
            attrs = {"class": "tts-input", "aria-label": title}
            self.fields[field].widget.attrs |= attrs

    def clean_name(self) -> str:
        return str(self.cleaned_data["name"]).strip().lower()

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        if found.get("voice") and not found.get("name"):
            raise ValidationError("Give a name to this row, or take its voice away.")
        return found


class _AliasRows(forms.BaseFormSet):  # type: ignore[type-arg]  # none at run time
    def clean(self) -> None:
        names = [form.cleaned_data.get("name") for form in self.forms if form.is_valid()]
        given = [name for name in names if name]
        twice = sorted({name for name in given if given.count(name) > 1})
        if twice:
            raise ValidationError(f"{', '.join(twice)}: each name may stand here only once.")


@admin.register(VoiceAlias)
class VoiceAliasAdmin(NounAdmin):
    """The names that clients of other services have built in, and names of one's own."""

    allowed = ("view", "add", "change", "delete")

    def get_urls(self) -> list[Any]:
        page = self.admin_site.admin_view(self.names_page)
        return [path("", page, name="voices_voicealias_changelist")]

    def names_page(self, request: HttpRequest) -> HttpResponse:
        """Show the form of all names, or save it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        user: AbstractBaseUser = request.user  # type: ignore[assignment]  # logged in
        voices = list(visible_voices(user).order_by("name"))
        shown = VoiceAlias.objects.filter(voice__in=voices)
        chosen = {alias.name: str(alias.voice_id) for alias in shown}
        names = [*WELL_KNOWN, *sorted(set(chosen) - set(WELL_KNOWN))]
        rows = self._rows(request, names, chosen, voices, _defaults(user))
        if request.method == "POST":
            if not self.has_change_permission(request):
                raise PermissionDenied
            if rows.is_valid():
                self._save(rows, shown)
                self.message_user(request, "The names were saved.", messages.SUCCESS)
                return HttpResponseRedirect(request.path)
        context = {"rows": rows, "may_change": self.has_change_permission(request)}
        return self.render_page(request, "voices/names.html", "Voice names", context)

    def _rows(
        self,
        request: HttpRequest,
        names: list[str],
        chosen: dict[str, str],
        voices: list[Voice],
        defaults: dict[str, str],
    ) -> Any:
        sent = sent_names(voices)
        labels = [(str(voice.pk), _label(voice, sent[voice])) for voice in voices]
        make = forms.formset_factory(
            AliasRow, formset=_AliasRows, extra=NEW_ROWS, max_num=len(names) + NEW_ROWS
        )
        return make(
            request.POST if request.method == "POST" else None,
            initial=[{"name": name, "voice": chosen.get(name, "")} for name in names],
            form_kwargs={
                "voices": labels,
                "defaults": defaults,
                "namesakes": {voice.name.lower() for voice in voices},
            },
            prefix="names",
        )

    @transaction.atomic
    def _save(self, rows: Any, shown: Any) -> None:
        """Make the aliases that the form shows those that it says; others are another user's."""
        said = {row.cleaned_data["name"]: row.cleaned_data["voice"] for row in rows.forms}
        kept = {name: voice for name, voice in said.items() if name and voice}
        shown.exclude(name__in=kept).delete()
        for name, voice in kept.items():
            VoiceAlias.objects.update_or_create(name=name, defaults={"voice_id": voice})


def _label(voice: Voice, sent: str) -> str:
    owner = f" ({sent[:8]})" if sent != voice.name else ""
    is_private = not voice.shared and voice.owner_id is not None
    return f"{voice.name}{owner}" + (" (not shared)" if is_private else "")


def _defaults(user: AbstractBaseUser) -> dict[str, str]:
    """Return the names of the voices that well-known names mean where nothing else is said."""
    voices = list(default_voices(user)[: len(WELL_KNOWN)])
    return dict(zip(WELL_KNOWN, cycle(voice.name for voice in voices), strict=False))
