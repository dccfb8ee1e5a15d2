"""Read which voices a list is to show; a filter that cannot be read is an error, not ignored."""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, Q, Subquery
from rest_framework import serializers

from ttsweb.http.query_filters import DescribedField, read_choices, some_of
from voices.api.serializers import LANGUAGE_TAG
from voices.models import VoiceVersion

_TRUTHS = {"true": True, "false": False}


class VoiceFilterSerializer(serializers.Serializer[Any]):
    """The filters of the voice list, as a condition on voices."""

    name = serializers.CharField(
        required=False, help_text="The whole name; upper and lower case are the same."
    )
    means = serializers.CharField(
        required=False,
        help_text=(
            "The one voice that is used when a job names this name or id: your own voice first, "
            "then one without an owner, then a shared one; 409 if several shared voices have "
            "the name."
        ),
    )
    language = DescribedField(
        schema={"type": "string", "pattern": f"^{LANGUAGE_TAG.pattern}$"},
        required=False,
        help_text="Language tag; `en` also finds `en-GB`.",
    )
    status = DescribedField(
        schema=some_of(VoiceVersion.Status.values),
        required=False,
        help_text="Status of the newest version; one or more, separated by commas.",
    )
    archived = DescribedField(
        schema={"type": "boolean"}, required=False, help_text="`true` or `false`."
    )
    shared = DescribedField(
        schema={"type": "boolean"}, required=False, help_text="`true` or `false`."
    )

    def validate_name(self, value: str) -> Q:
        """Return the condition for a name."""
        return Q(name__iexact=value)

    def validate_means(self, value: str) -> Q:
        """Return no condition: which voice it is depends on who asks, so the view looks for it."""
        return Q()

    def validate_language(self, value: str) -> Q:
        """Return the condition for a language and its regions."""
        if not LANGUAGE_TAG.fullmatch(value):
            raise serializers.ValidationError("Expected a language tag such as en or pt-BR.")
        return Q(language__iexact=value) | Q(language__istartswith=f"{value}-")

    def validate_status(self, value: str) -> Q:
        """Return the condition for statuses of the newest version."""
        names = read_choices(value, VoiceVersion.Status.values)
        newest = VoiceVersion.objects.filter(voice=OuterRef("voice")).order_by("-number")
        found = VoiceVersion.objects.filter(
            status__in=names, voice__isnull=False, pk=Subquery(newest.values("pk")[:1])
        )
        return Q(pk__in=found.values("voice"))

    def validate_archived(self, value: str) -> Q:
        """Return the condition for voices that are put aside, or are not."""
        return Q(archived=_truth(value))

    def validate_shared(self, value: str) -> Q:
        """Return the condition for voices that all users may speak with, or not all."""
        return Q(shared=_truth(value))


def _truth(value: str) -> bool:
    if value not in _TRUTHS:
        raise serializers.ValidationError("Expected true or false.")
    return _TRUTHS[value]
