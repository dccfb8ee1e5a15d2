"""Read and write webhooks as the API has them."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

from django.db.models import Q
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty

from synth.api.fields import URL_PATTERN, StrictTextField
from synth.api.option_fields import StrictBooleanField
from synth.jobs.rejections import SubmitRejectedError
from synth.models import WebhookDelivery, WebhookEndpoint, WebhookSecret
from synth.webhooks.signing import previous_until
from synth.webhooks.urls import check_webhook_url
from ttsweb.http.api import StrictSerializer
from ttsweb.http.guarded_url import MOST_CHARACTERS
from ttsweb.http.query_filters import UUID, DescribedField, read_choices, some_of

EVENTS = WebhookDelivery.Event.values


class WebhookUrlField(StrictTextField):
    """Take a URL to which messages may be sent."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(raw=True, max_length=MOST_CHARACTERS, pattern=URL_PATTERN, **kwargs)

    def run_validation(self, data: Any = empty) -> str:
        """Return the URL as it is written; an empty text is none.

        Raises:
            ValidationError: url_invalid, url_scheme or url_private_address.
        """
        url: str = super().run_validation(data)
        try:
            check_webhook_url(url)
        except SubmitRejectedError as error:
            raise serializers.ValidationError(str(error), code=error.code) from error
        return url


@extend_schema_field(
    {
        "type": "array",
        "items": {"type": "string", "enum": EVENTS},
        "minItems": 1,
        "uniqueItems": True,
    }
)
class EventsField(serializers.Field[Any, Any, Any, Any]):
    """Take the names of events, each once."""

    def to_internal_value(self, data: Any) -> list[str]:
        """Return the names."""
        if not isinstance(data, list) or not data:
            raise serializers.ValidationError("Expected a list of at least one event.")
        unknown = [one for one in data if one not in EVENTS]
        if unknown:
            raise serializers.ValidationError(
                f"Unknown event; the allowed events are {', '.join(EVENTS)}."
            )
        if len(set(data)) < len(data):
            raise serializers.ValidationError("Name each event once.", code="repeated")
        return data

    def to_representation(self, value: Any) -> Any:
        """Return the names as they are."""
        return value


class EndpointCreateSerializer(StrictSerializer):
    """A URL that receives events."""

    url = WebhookUrlField()
    events = EventsField(required=False, help_text="The events to send; all events if left out.")
    enabled = StrictBooleanField(required=False)


class EndpointChangeSerializer(StrictSerializer):
    """Changes of an endpoint."""

    url = WebhookUrlField(required=False)
    events = EventsField(required=False)
    enabled = StrictBooleanField(
        required=False,
        help_text="False: nothing more is sent to this URL, not even waiting messages.",
    )


class EndpointSerializer(serializers.ModelSerializer[WebhookEndpoint]):
    """A URL that receives events."""

    events = EventsField()

    class Meta:
        model = WebhookEndpoint
        fields = ("id", "url", "events", "enabled", "created_at")
        read_only_fields = fields


class DeliveryListSerializer(serializers.ModelSerializer[WebhookDelivery]):
    """One message to one URL, and its state."""

    job = serializers.UUIDField(source="job_id", allow_null=True, read_only=True)
    next_attempt_at = serializers.SerializerMethodField()

    class Meta:
        model = WebhookDelivery
        fields: tuple[str, ...] = (
            "id",
            "event",
            "job",
            "url",
            "status",
            "attempts",
            "response_status",
            "error_code",
            "error_message",
            "next_attempt_at",
            "give_up_at",
            "created_at",
            "finished_at",
        )
        read_only_fields = fields

    def get_next_attempt_at(self, row: WebhookDelivery) -> dt.datetime | None:
        """Return when it is sent again; null if it is not."""
        return row.not_before if row.status == WebhookDelivery.Status.QUEUED else None


class DeliverySerializer(DeliveryListSerializer):
    """One message to one URL, its state and its content."""

    body = serializers.CharField(
        read_only=True, help_text="The JSON body, byte for byte as it is sent."
    )

    class Meta(DeliveryListSerializer.Meta):
        fields = (*DeliveryListSerializer.Meta.fields, "body")
        read_only_fields = fields


class SecretSerializer(serializers.ModelSerializer[WebhookSecret]):
    """The secret that signs a user's messages."""

    secret = serializers.CharField(
        help_text="`whsec_` and base64, in the format of Standard Webhooks."
    )
    previous_valid_until = serializers.SerializerMethodField(
        help_text="Until this time, messages are also signed with the previous secret."
    )

    class Meta:
        model = WebhookSecret
        fields = ("secret", "rotated_at", "previous_valid_until")
        read_only_fields = fields

    def get_previous_valid_until(self, row: WebhookSecret) -> dt.datetime | None:
        """Return when the previous secret ends; null when there is none."""
        return previous_until(row)


class DeliveryFilterSerializer(serializers.Serializer[Any]):
    """The filters of the list of deliveries, as a condition on them."""

    status = DescribedField(
        schema=some_of(WebhookDelivery.Status.values),
        required=False,
        help_text="One or more statuses, separated by commas.",
    )
    event = DescribedField(
        schema=some_of(EVENTS), required=False, help_text="One or more events, separated by commas."
    )
    job = DescribedField(schema=UUID, required=False, help_text="Id of a job.")

    def validate_status(self, value: str) -> Q:
        """Return the condition for statuses."""
        return Q(status__in=read_choices(value, WebhookDelivery.Status.values))

    def validate_event(self, value: str) -> Q:
        """Return the condition for events."""
        return Q(event__in=read_choices(value, EVENTS))

    def validate_job(self, value: str) -> Q:
        """Return the condition for a job."""
        try:
            return Q(job_id=uuid.UUID(value))
        except ValueError as error:
            raise serializers.ValidationError("Expected the id of a job.") from error
