"""Serve the audit log over REST, to who sees the whole installation."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request

from synth.accounts.access import sees_installation
from synth.api.accounts.authentication import key_of
from synth.models import AuditEntry
from ttsweb.http.api import ApiProblem
from ttsweb.http.nouns import ListView
from ttsweb.http.query_filters import Filter, id_filter, moment_filter, names_filter

_LONGEST = 150
METHODS = ("POST", "PUT", "PATCH", "DELETE")


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {
            "oneOf": [
                {"type": "string"},
                {"type": "integer"},
                {"type": "array", "items": {"type": "string"}},
            ]
        },
    }
)
class IdsField(serializers.JSONField):
    """The ids that a request named, and that of what it made."""


class AuditSerializer(serializers.ModelSerializer[AuditEntry]):
    """One request that changed something, or tried to."""

    ids = IdsField(read_only=True, help_text="By name: `id` is what the request made.")

    class Meta:
        model = AuditEntry
        fields = (
            "id", "created_at", "user_id", "username", "key_id", "key_prefix", "method", "route",
            "ids", "address", "status",
        )  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {  # noqa: RUF012  # DRF reads it
            "route": {"help_text": "The name of the route, such as `jobs` or `admin:logout`."},
            "address": {"help_text": "Where the request came from, as far as the server knows."},
            "status": {"help_text": "The HTTP status of the answer."},
        }


def _text_filter(help_text: str) -> Filter:
    schema = {"type": "string", "maxLength": _LONGEST}
    return Filter(_read_text, None, schema=schema, help_text=help_text)


def _read_text(text: str) -> str:
    if len(text) > _LONGEST:
        raise serializers.ValidationError(f"Expected at most {_LONGEST} characters.")
    if "\0" in text:  # which PostgreSQL does not take
        code = "null_characters_not_allowed"
        raise serializers.ValidationError("Expected a text without NUL characters.", code=code)
    return text


class AuditFilterSerializer(serializers.Serializer[Any]):
    """The filters of the log, as a condition on its entries."""

    username = _text_filter("Name of the user, exactly.")
    route = _text_filter("Name of the route, exactly.")
    key = id_filter("key", lambda key_id: Q(key_id=key_id))
    method = names_filter(METHODS, "One or more methods, separated by commas.")
    created_after = moment_filter("created_at__gt")
    created_before = moment_filter("created_at__lt")


class AuditView(ListView[AuditEntry]):
    lists = (
        "list_audit",
        "List requests that changed something, newest first; they are kept for 90 days.\n\nFor "
        "superusers, and staff who may view workers; a key needs the scope `admin`. Entries have "
        "no texts, names or bodies.",
        403,
    )
    serializer_class = AuditSerializer
    filters = AuditFilterSerializer

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let nobody else in.

        Raises:
            ApiProblem: 403 installation_hidden.
        """
        super().initial(request, *args, **kwargs)
        if not sees_installation(request.user, key_of(request)):
            sentence = (
                "The audit log is for superusers, and for staff who may view workers; a key needs "
                "the scope `admin`."
            )
            raise ApiProblem(403, "installation_hidden", sentence)

    def rows(self) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.all()
