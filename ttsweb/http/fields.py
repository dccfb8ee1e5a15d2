"""Fields of requests and answers that say themselves what the API's description tells of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.plumbing import resolve_type_hint
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.utils.html import is_html_input

NOT_BLANK = r"\S"  # pattern of a text that is not blanks alone


class SelfDescribingField:
    """Mark a field that describes itself in the OpenAPI schema."""

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        raise NotImplementedError


class SelfDescribingScheme(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # theirs
    """Hand on how a field describes itself."""

    target_class = SelfDescribingField
    match_subclasses = True

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.target.describe(auto_schema, direction)
        return found


class DescribedField(SelfDescribingField, serializers.CharField):
    """Take a text of a query, and say in the API's description which texts are taken.

    Args:
        schema: the description, of which the validator of the field is the judge.
    """

    def __init__(self, *, schema: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.schema = schema

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        return dict(self.schema)


class ShownField(SelfDescribingField, serializers.Field[Any, Any, Any, Any]):
    """Show what a function reads of a row.

    Args:
        read: takes the row.
        described: a field, a serializer, a schema or a type that describes what is shown.
    """

    def __init__(
        self,
        read: Callable[[Any], Any],
        described: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(source="*", read_only=True, **kwargs)
        self.read, self.described = read, described

    def to_representation(self, row: Any) -> Any:
        return self.read(row)

    def describe(self, auto_schema: Any, direction: Any) -> Any:
        if isinstance(self.described, Mapping):
            return dict(self.described)
        if isinstance(self.described, type | UnionType):
            return resolve_type_hint(self.described)  # type: ignore[no-untyped-call]  # theirs
        described = self.described or serializers.CharField(help_text=self.help_text)
        return auto_schema._map_serializer_field(described, direction)


class StrictBooleanField(serializers.BooleanField):
    """Take true and false alone; in a form, where all is text, their spelling."""

    default_empty_html = empty  # DRF would take a field that a form leaves out for false
    ignores_case = False  # of the spelling in a form

    def to_internal_value(self, data: Any) -> bool:
        """Return the value; 1, "yes" and the like are errors."""
        is_form = self.context.get("is_form", False)
        is_form = is_form or is_html_input(getattr(self.root, "initial_data", None))
        if is_form and isinstance(data, str):
            said = data.lower() if self.ignores_case else data
            data = {"true": True, "false": False}.get(said, data)
        if not isinstance(data, bool):
            raise serializers.ValidationError("Expected true or false.", code="invalid")
        return data


class PageSerializer(serializers.ListSerializer[Any]):
    """Rows of one page, of which the child looks up together what it shows."""

    def to_representation(self, data: Any) -> list[Any]:
        rows = list(data)
        page: Any = self.child
        page.look_up(rows)
        return super().to_representation(rows)


class LookUpMixin:
    """Look up what is shown of rows by a few queries for a whole page; before a serializer."""

    parent: Any

    def look_up(self, rows: Sequence[Any]) -> None:
        """Find what `to_representation` shows of these rows."""
        raise NotImplementedError

    def to_representation(self, instance: Any) -> Any:
        """Return what is shown of a row; one that is shown alone is looked up here."""
        if self.parent is None:
            self.look_up([instance])
        return super().to_representation(instance)  # type: ignore[misc]  # a serializer's
