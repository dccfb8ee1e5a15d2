"""Describe our errors and keys in the OpenAPI schema, once for all operations."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import force_instance
from drf_spectacular.utils import OpenApiResponse
from rest_framework import serializers

from ttsweb.api import PROBLEM_TYPE, StrictSerializer

_MEANINGS = {
    400: "A field is missing, unknown or not to be used.",
    401: "No key, or one that is not known, revoked or expired.",
    403: "The key lacks the scope for this: `scope_missing` names it.",
    404: "There is no such thing.",
    409: "Not in this state; `Retry-After` is set where waiting helps.",
    410: "It was there, and its bytes are gone.",
    413: "Larger than is taken.",
    415: "A media type that is not read here.",
    416: "The range lies outside of the file.",
    422: "The Idempotency-Key was used with another body.",
    429: "The key is at a limit, `key_limit_…`; `Retry-After` is set where waiting helps.",
    503: "Not now; `Retry-After` says when to come again.",
}


class ProblemItemSerializer(serializers.Serializer[Any]):
    """One error of a request: which field, which code, in words."""

    attr = serializers.CharField(allow_null=True, help_text="Dotted path of the field, or null.")
    code = serializers.CharField()
    detail = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """An error as RFC 9457 has it; match on `code`."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField()
    errors = ProblemItemSerializer(many=True)  # type: ignore[assignment]  # the name is RFC 9457's


def problems(*statuses: int) -> dict[tuple[int, str], OpenApiResponse]:
    """Return what `extend_schema(responses=...)` takes for the errors of an operation."""
    return {
        (status, PROBLEM_TYPE): OpenApiResponse(ProblemSerializer, _MEANINGS[status])
        for status in statuses
    }


class ProblemAutoSchema(AutoSchema):
    """Add to each operation what a key may be refused for, and that all else is a problem too."""

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

    def _insert_field_validators(self, field: Any, schema: Any) -> None:
        """Add what validators say; a field that states its pattern means it of blanks as well."""
        super()._insert_field_validators(field, schema)  # type: ignore[no-untyped-call]  # theirs
        if getattr(field, "pattern", "") and "oneOf" in schema:
            schema.update(schema.pop("oneOf")[0])

    def _map_basic_serializer(self, serializer: Any, direction: Any) -> dict[str, Any]:
        """Return an object's schema; what is strict when it reads takes no other properties."""
        schema: dict[str, Any] = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]  # theirs
        is_strict = isinstance(force_instance(serializer), StrictSerializer)  # type: ignore[no-untyped-call]  # theirs
        if is_strict and direction == "request":
            schema["additionalProperties"] = False
        return schema


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # theirs
    """Describe `Authorization: Bearer tts_…`."""

    target_class = "ttsweb.api.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, str]:
        """Return the scheme's definition."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "tts_<prefix>_<secret>"}
