"""Serve webhooks over REST: the secret, the endpoints, the deliveries."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth import webhooks
from synth.api.fields import URL_PATTERN, StrictTextField, identifier, string
from synth.models import ApiKey, Batch, WebhookDelivery, WebhookEndpoint, WebhookSecret
from synth.transitions.webhooks import resend_delivery
from synth.webhooks import tell_test
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import ShownField, StrictBooleanField
from ttsweb.http.guarded_fetch import MOST_CHARACTERS
from ttsweb.http.nouns import ListView, Noun, Row, check_no_fields, get_row, operation
from ttsweb.http.query_filters import id_filter, names_filter
from ttsweb.refusals import SubmitRejectedError

EVENTS = WebhookDelivery.Event.values


class WebhookUrlField(StrictTextField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(raw=True, max_length=MOST_CHARACTERS, pattern=URL_PATTERN, **kwargs)

    def run_validation(self, data: Any = empty) -> str:
        """Return the URL as it is written; an empty text is none.

        Raises:
            ValidationError: url_invalid, url_scheme or url_private_address.
        """
        url: str = super().run_validation(data)
        try:
            webhooks.check_webhook_url(url)
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
    def to_internal_value(self, data: Any) -> list[str]:
        if not isinstance(data, list) or not data:
            raise serializers.ValidationError("Expected a list of at least one event.")
        unknown = [one for one in data if one not in EVENTS]
        if unknown:
            sentence = f"Unknown event; the allowed events are {', '.join(EVENTS)}."
            raise serializers.ValidationError(sentence)
        if len(set(data)) < len(data):
            raise serializers.ValidationError("Name each event once.", code="repeated")
        return data

    def to_representation(self, value: Any) -> Any:
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

    job = identifier(null=True, source="about", read_only=True)
    next_attempt_at = ShownField(
        lambda row: row.not_before if row.status == WebhookDelivery.Status.QUEUED else None,
        serializers.DateTimeField(
            allow_null=True, help_text="Return when it is sent again; null if it is not."
        ),
    )

    class Meta:
        model = WebhookDelivery
        fields: tuple[str, ...] = (
            "id", "event", "job", "url", "status", "attempts", "response_status", "error_code",
            "error_message", "next_attempt_at", "give_up_at", "created_at", "finished_at",
        )  # fmt: skip
        read_only_fields = fields


class DeliverySerializer(DeliveryListSerializer):
    """One message to one URL, its state and its content."""

    body = string("The JSON body, byte for byte as it is sent.", read_only=True)

    class Meta(DeliveryListSerializer.Meta):
        fields = (*DeliveryListSerializer.Meta.fields, "body")
        read_only_fields = fields


class SecretSerializer(serializers.ModelSerializer[WebhookSecret]):
    """The secret that signs a user's messages."""

    secret = string("`whsec_` and base64, in the format of Standard Webhooks.")
    previous_valid_until = ShownField(
        webhooks.previous_until,
        serializers.DateTimeField(
            allow_null=True,
            help_text="Until this time, messages are also signed with the previous secret.",
        ),
    )

    class Meta:
        model = WebhookSecret
        fields = ("secret", "rotated_at", "previous_valid_until")
        read_only_fields = fields


def _is_about(job_id: uuid.UUID) -> Q:
    return Q(job=job_id) | Q(batch=job_id, batch__kind=Batch.Kind.TEXTS)


class DeliveryFilterSerializer(serializers.Serializer[Any]):
    """The filters of the list of deliveries, as a condition on them."""

    status = names_filter(
        WebhookDelivery.Status.values, "One or more statuses, separated by commas."
    )
    event = names_filter(EVENTS, "One or more events, separated by commas.")
    job = id_filter("job", _is_about)


_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202])


def _own(rows: QuerySet[Row], user: AbstractBaseUser | AnonymousUser) -> QuerySet[Row]:
    """Return those rows that are a user's; a superuser's are as few."""
    return rows.filter(owner_id=user.pk) if user.pk else rows.none()


def _endpoint(request: Request, endpoint_id: uuid.UUID) -> WebhookEndpoint:
    rows = _own(WebhookEndpoint.objects.all(), request.user)
    return get_row(rows, "endpoint_not_found", "No endpoint of yours has this id.", pk=endpoint_id)


def _delivery(request: Request, delivery_id: uuid.UUID) -> WebhookDelivery:
    rows = _own(WebhookDelivery.objects.all(), request.user)
    return get_row(rows, "delivery_not_found", "No delivery of yours has this id.", pk=delivery_id)


def _user(request: Request) -> Any:
    return request.user  # permission: never anonymous


ENDPOINT = Noun("webhook-endpoint", EndpointSerializer, _endpoint)
DELIVERY = Noun("webhook-delivery", DeliverySerializer, _delivery)


class SecretView(APIView):
    # Whoever has it can forge messages, so that reading alone is not enough.
    read_scopes = (ApiKey.Scope.JOBS,)

    @operation("get_webhook_secret", SecretSerializer, 503)
    def get(self, request: Request) -> Response:
        """Return the user's secret."""
        return Response(SecretSerializer(webhooks.secret_of(_user(request))).data)


class SecretRotateView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation("rotate_webhook_secret", SecretSerializer, request=None)
    def post(self, request: Request) -> Response:
        """Make a new secret; for 24 hours, messages are also signed with the previous secret."""
        check_no_fields(request)
        return Response(SecretSerializer(webhooks.rotate_secret(_user(request))).data)


class EndpointsView(ListView[WebhookEndpoint]):
    write_scopes = (ApiKey.Scope.JOBS,)
    lists = ("list_webhook_endpoints", "List endpoints, newest first.")
    serializer_class = EndpointSerializer

    def rows(self) -> QuerySet[WebhookEndpoint]:
        return _own(WebhookEndpoint.objects.all(), self.request.user)

    post = ENDPOINT.maker(
        "create_webhook_endpoint",
        "Send the events of all your jobs and voices to a URL.",
        lambda request, asked: webhooks.create_endpoint(_user(request), asked),
        EndpointCreateSerializer,
        *(409, 413),
    )


class EndpointView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    get = ENDPOINT.getter("get_webhook_endpoint", "Return an endpoint.")
    patch = ENDPOINT.changer(
        "change_webhook_endpoint",
        "Change an endpoint; messages that wait for a URL that you replaced are not sent.",
        lambda request, endpoint, asked: webhooks.change_endpoint(endpoint, asked),
        EndpointChangeSerializer,
        413,
        is_partial=False,
    )
    delete = ENDPOINT.deleter(
        "delete_webhook_endpoint",
        "Delete an endpoint; messages that wait for it are not sent.",
        webhooks.delete_endpoint,
    )


class EndpointTestView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation(
        "test_webhook_endpoint",
        {202: DeliverySerializer},
        404,
        request=None,
        parameters=[_LOCATION],
    )
    def post(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        """Send the event `test` to an endpoint, even if it is off or does not want this event."""
        check_no_fields(request)
        return _accepted(tell_test(_endpoint(request, endpoint_id)))


class DeliveriesView(ListView[WebhookDelivery]):
    lists = (
        "list_webhook_deliveries",
        "List deliveries, newest first; they are kept for 30 days after their end.",
    )
    serializer_class = DeliveryListSerializer
    filters = DeliveryFilterSerializer

    def rows(self) -> QuerySet[WebhookDelivery]:
        return _own(WebhookDelivery.objects.defer("body"), self.request.user)


class DeliveryView(APIView):
    get = DELIVERY.getter("get_webhook_delivery", "Return a delivery and its content.")


class DeliveryResendView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation(
        "resend_webhook_delivery",
        {202: DeliverySerializer},
        *(404, 409),
        request=None,
        parameters=[_LOCATION],
    )
    def post(self, request: Request, delivery_id: uuid.UUID) -> Response:
        """Send a delivery again at once, delivered or not, with the same id and body."""
        check_no_fields(request)
        if not resend_delivery(_delivery(request, delivery_id).pk):
            sentence = "The delivery is being sent right now; try again in a moment."
            raise ApiProblem(409, "delivery_in_progress", sentence, retry_after=2)
        return _accepted(_delivery(request, delivery_id))


def _accepted(row: WebhookDelivery) -> Response:
    answer = Response(DeliverySerializer(row).data, status=202)
    answer["Location"] = reverse("webhook-delivery", args=[row.pk])
    return answer
