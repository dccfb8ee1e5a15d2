"""What the API's description tells: fields that describe themselves, errors, keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any

from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiSerializerFieldExtension,
)
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import force_instance, resolve_type_hint
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.utils.html import is_html_input

from ttsweb.http.api import StrictSerializer
from ttsweb.http.problems import PROBLEM_TYPE

# Pattern of a text that is not blanks alone; Python strips more characters than `\s` has elsewhere.
NOT_BLANK = r"[^\s\x1c-\x1f\x85]"


class SelfDescribingField:
    """Mark a field that describes itself in the OpenAPI schema."""

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        raise NotImplementedError


class SelfDescribingScheme(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # theirs
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
        raise NotImplementedError

    def to_representation(self, instance: Any) -> Any:
        if self.parent is None:
            self.look_up([instance])
        return super().to_representation(instance)  # type: ignore[misc]  # a serializer's


class SharedFieldsMixin:
    """Build a serializer's fields once for all rows; before one whose fields use no context.

    DRF copies them for every answer, which takes a tenth of what making a job takes.
    """

    @property
    def fields(self) -> Any:
        own = vars(type(self))
        if "_shared" not in own:
            bare: Any = super(SharedFieldsMixin, type(self)())
            type(self)._shared = bare.fields  # type: ignore[attr-defined]  # of each class
        return own["_shared"]


_MEANINGS = {
    400: "A field is missing, unknown or has an invalid value; `errors` names each field.",
    401: "The API key is missing, unknown, revoked or expired. Send one as "
    "`Authorization: Bearer tts_…`.",
    403: "The key lacks a scope (`scope_missing` names it), or its user lacks a permission.",
    404: "Nothing with this id exists, or you may not see it.",
    409: "Not possible in the present state; `Retry-After` is set if waiting helps.",
    410: "The file existed, but is no longer stored.",
    413: "Larger than the limit that `detail` names.",
    415: "The content type is not accepted; `detail` names those that are.",
    416: "The range lies outside the file.",
    422: "The Idempotency-Key was used with another body.",
    429: "The key is at a limit, `key_limit_…`; `Retry-After` is set if waiting helps.",
    503: "Not possible at the moment; `Retry-After` says when to try again.",
}


class ProblemItemSerializer(serializers.Serializer[Any]):
    """One error of a request: which field, which code, in words."""

    attr = serializers.CharField(allow_null=True, help_text="Dotted path of the field, or null.")
    code = serializers.CharField()
    detail = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """An error as in RFC 9457; programs should check its `code`."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField()
    errors = ProblemItemSerializer(many=True)  # type: ignore[assignment]  # the name is RFC 9457's


def problems(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    return {
        (status, PROBLEM_TYPE): OpenApiResponse(ProblemSerializer, _MEANINGS[status])
        for status in sorted(statuses)
    }


class ProblemAutoSchema(AutoSchema):
    """Add to each operation what a key may be refused for, and that all else is a problem too."""

    def get_summary(self) -> str:
        return re.split(r"[.;:](?=\s|$)", self.get_description())[0].strip()

    def _get_parameters(self) -> list[dict[str, Any]]:
        parameters: list[dict[str, Any]] = super()._get_parameters()
        for one in parameters:
            if "$ref" in one.get("schema", {}):
                one["content"] = {"application/json": {"schema": one.pop("schema")}}
        return parameters

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        """Return the operation's answers with 403, 429 and `default` among them."""
        answers: dict[str, Any] = super()._get_response_bodies(direction)  # type: ignore[arg-type]  # a Literal
        problem = OpenApiResponse(ProblemSerializer, "Any other error.")
        build: Any = self._get_response_for_code
        for status in (403, 429):
            answer = OpenApiResponse(ProblemSerializer, _MEANINGS[status])
            answers[str(status)] = build(answer, str(status), [PROBLEM_TYPE])
        answers["default"] = build(problem, "default", [PROBLEM_TYPE])
        return answers

    def _get_request_body(self, direction: Any = "request") -> dict[str, Any] | None:
        """Return the body's description; where it may be a file as it is, there has to be one."""
        body: dict[str, Any] | None = super()._get_request_body(direction)  # type: ignore[no-untyped-call]  # theirs
        binary = {"type": "string", "format": "binary"}
        if body and any(kind.get("schema") == binary for kind in body["content"].values()):
            body["required"] = True
        return body

    def _get_serializer_field_meta(self, field: Any, direction: Any) -> dict[str, Any]:
        """Return what a field says of itself; no file is empty, and no text but blanks is one.

        What a described field of a query may be, its own schema says whole.
        """
        meta: dict[str, Any] = super()._get_serializer_field_meta(field, direction)  # type: ignore[no-untyped-call]  # theirs
        if direction != "request":
            return meta
        if isinstance(field, serializers.FileField):
            meta["minLength"] = 1
        elif isinstance(field, DescribedField):
            meta.pop("minLength", None)
        elif meta.get("minLength") and getattr(field, "trim_whitespace", False):
            meta["pattern"] = NOT_BLANK
        return meta

    def _insert_field_validators(self, field: Any, schema: Any) -> None:
        """Add what validators say; a field that states its pattern means it of blanks as well."""
        super()._insert_field_validators(field, schema)  # type: ignore[no-untyped-call]  # theirs
        if getattr(field, "pattern", "") and "oneOf" in schema:
            schema.update(schema.pop("oneOf")[0])
        if getattr(field, "unique_items", False):
            schema["uniqueItems"] = True
        if not getattr(field, "allow_empty", True):
            schema["minItems"] = 1

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> dict[str, Any]:
        """Return an object's schema; what is strict when it reads takes no other properties."""
        schema: dict[str, Any] = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]  # theirs
        made: Any = force_instance(serializer)  # type: ignore[no-untyped-call]  # theirs
        if isinstance(made, StrictSerializer) and direction == "request":
            schema["additionalProperties"] = False
            schema.update(made.described_rules)
        return schema


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # theirs
    target_class = "synth.api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "tts_<prefix>_<secret>"}
