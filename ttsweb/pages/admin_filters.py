"""Filters of the admin's lists that name what Django's leave blank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.admin import AllValuesFieldListFilter
from django.contrib.admin.views.main import ChangeList


class NamedValuesFilter(AllValuesFieldListFilter):
    """All values that there are; the empty one is a link with words as well."""

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Return the choices, the empty one as "not said"."""
        for choice in super().choices(changelist):
            shown = choice["display"] if str(choice["display"]).strip() else "not set"
            yield {**choice, "display": shown}
