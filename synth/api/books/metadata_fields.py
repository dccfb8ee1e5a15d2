"""Read what people say of a book: title, authors, series and more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from rest_framework import serializers
from rest_framework.fields import empty

from synth.api.fields import SelfDescribingField, StrictTextField
from synth.api.option_fields import JsonField, LanguageField, ListField
from synth.audiobooks.metadata import METADATA_FIELDS, METADATA_LISTS
from ttsweb.http.api import StrictSerializer

MAX_LINE_CHARS, MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS = 500, 300, 10_000
MOST_NAMES = 50
_DATE = re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2])(-[0-9]{2})?)?")
_NUMBER = re.compile(r"[0-9]{1,5}(\.[0-9]{1,3})?")
_LINES = frozenset("\n\t")


class LineField(StrictTextField):
    """Take a text of one line; blanks around it are cut off."""

    def to_internal_value(self, data: Any) -> str:
        """Return the text; one with control characters is an error."""
        text = super().to_internal_value(data).strip()
        if any(not c.isprintable() for c in text):
            raise serializers.ValidationError(
                "Expected one line without control characters.", code="not_one_line"
            )
        return text


class NameField(LineField):
    """Take a name, which is never empty."""

    def run_validation(self, data: Any = empty) -> Any:
        """Return the name."""
        found = super().run_validation(data)
        if found == "":
            raise serializers.ValidationError("Expected a name.", code="blank")
        return found


class MetadataSerializer(StrictSerializer):
    """Metadata that replaces the values of a book's file; null restores the file's value.

    An empty text or list says that there is none, whatever the file says.
    """

    title = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)
    subtitle = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)
    series = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)
    series_index = LineField(
        required=False,
        allow_null=True,
        max_length=10,
        help_text=('Position in the series, as text: "2" or "2.5".'),
    )
    publisher = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)
    date = LineField(
        required=False,
        allow_null=True,
        max_length=10,
        help_text="Such as 1895, 1895-05 or 1895-05-07.",
    )
    description = StrictTextField(required=False, allow_null=True, max_length=MAX_DESCRIPTION_CHARS)
    language = LanguageField(required=False, allow_null=True)
    rights = LineField(required=False, allow_null=True, max_length=MAX_LINE_CHARS)

    def get_fields(self) -> dict[str, Any]:
        """Return the fields in their order, with those that are lists of names."""
        names = {
            name: ListField(
                child=NameField(max_length=MAX_NAME_CHARS),
                most=MOST_NAMES,
                required=False,
                allow_null=True,
            )
            for name in METADATA_LISTS
        }
        fields = {**super().get_fields(), **names}
        return {name: fields[name] for name in METADATA_FIELDS}

    def validate_title(self, value: str | None) -> str | None:
        """Refuse an empty title: a book without one has no name."""
        if value == "":
            raise serializers.ValidationError("Expected a title, or null.", code="blank")
        return value

    def validate_date(self, value: str | None) -> str | None:
        """Refuse what is no year, month or day."""
        if value and not (_DATE.fullmatch(value) and _is_day(value)):
            raise serializers.ValidationError(
                "Expected a year, a month or a day, such as 1895, 1895-05 or 1895-05-07.",
                code="date_invalid",
            )
        return value

    def validate_series_index(self, value: str | None) -> str | None:
        """Refuse what is no number."""
        if value and not _NUMBER.fullmatch(value):
            raise serializers.ValidationError(
                'Send a number as text, such as "2" or "2.5".', code="number_invalid"
            )
        return value

    def validate_description(self, value: str | None) -> str | None:
        """Refuse control characters other than ends of lines and tabs."""
        if value and any(not c.isprintable() and c not in _LINES for c in value):
            raise serializers.ValidationError(
                "Expected a text without control characters.", code="control_characters"
            )
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return what was said, as a plain object."""
        return dict(attrs)


class MetadataField(SelfDescribingField, JsonField):
    """Take an object of metadata; in a form, where all is text, its spelling in JSON."""

    def read(self, data: Any) -> dict[str, Any]:
        """Return what was said; nulls stay, for whoever changes what was said before."""
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("Expected an object.", code="invalid")
        return dict(MetadataSerializer().run_validation(data))

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the field's schema."""
        return dict(auto_schema.resolve_serializer(MetadataSerializer, direction).ref)


class BookPatchSerializer(StrictSerializer):
    """The fields of a book that can be changed at any time."""

    metadata = MetadataField(
        help_text=(
            "Metadata that replaces the file's own. Fields that are left out do not change; "
            "null restores the file's value."
        )
    )


def _is_day(text: str) -> bool:
    """Say whether a date with a day is one of the calendar."""
    if len(text) < len("1895-05-07"):
        return True
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
