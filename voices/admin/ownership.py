"""Let the voices' pages keep to whose voice it is, as the API does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from voices.access import may_change
from voices.models import Voice


class OwnedVoicesAdmin(ModelAdmin):  # type: ignore[misc]  # theirs has no types
    """Voices of which the owner and superusers change each, and others only look at the shared."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return whether the user may change voices, and this one."""
        return super().has_change_permission(request, obj) and _is_own(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return whether the user may delete voices, and this one."""
        return super().has_delete_permission(request, obj) and _is_own(request, obj)

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the form, which knows among whose voices a name has to be new."""
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.owner_id = obj.owner_id if isinstance(obj, Voice) else request.user.pk
        return form

    def own_of(self, request: HttpRequest, voices: Iterable[Voice]) -> list[Voice]:
        """Return those of the chosen voices that the user may change, and tell of the others."""
        chosen = list(voices)
        own = [voice for voice in chosen if may_change(request.user, voice)]
        if len(own) < len(chosen):
            others = ", ".join(voice.name for voice in chosen if voice not in own)
            sentence = f"Not changed, as these voices are not yours: {others}."
            self.message_user(request, sentence, messages.WARNING)
        return own


def _is_own(request: HttpRequest, obj: Model | None) -> bool:
    return not isinstance(obj, Voice) or may_change(request.user, obj)
