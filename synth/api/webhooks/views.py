"""Serve webhooks over REST: the secret, the endpoints, the deliveries."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.webhooks.serializers import (
    DeliveryFilterSerializer,
    DeliveryListSerializer,
    DeliverySerializer,
    EndpointChangeSerializer,
    EndpointCreateSerializer,
    EndpointSerializer,
    SecretSerializer,
)
from synth.models import ApiKey, WebhookDelivery, WebhookEndpoint
from synth.transitions import resend_delivery
from synth.webhooks.endpoints import change_endpoint, create_endpoint, delete_endpoint
from synth.webhooks.events import tell_test
from synth.webhooks.signing import rotate_secret, secret_of
from ttsweb.http.api import ApiProblem, check_query
from ttsweb.http.nouns import ListView, Noun, check_no_fields, list_rows
from ttsweb.http.schema import problems


def own_endpoints(user: AbstractBaseUser | AnonymousUser) -> QuerySet[WebhookEndpoint]:
    """Return a user's endpoints; a superuser's are as few."""
    rows = WebhookEndpoint.objects.all()
    return rows.filter(owner_id=user.pk) if user.pk else rows.none()


def own_deliveries(user: AbstractBaseUser | AnonymousUser) -> QuerySet[WebhookDelivery]:
    """Return what was sent, or is to be, to a user's webhooks."""
    rows = WebhookDelivery.objects.all()
    return rows.filter(owner_id=user.pk) if user.pk else rows.none()


_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[202])


def _endpoint(request: Request, endpoint_id: uuid.UUID) -> WebhookEndpoint:
    """Return an endpoint of the user, or raise the 404."""
    row = own_endpoints(request.user).filter(pk=endpoint_id).first()
    if row is None:
        raise ApiProblem(404, "endpoint_not_found", "No endpoint of yours has this id.")
    return row


def _delivery(request: Request, delivery_id: uuid.UUID) -> WebhookDelivery:
    """Return a delivery of the user, or raise the 404."""
    row = own_deliveries(request.user).filter(pk=delivery_id).first()
    if row is None:
        raise ApiProblem(404, "delivery_not_found", "No delivery of yours has this id.")
    return row


def _user(request: Request) -> Any:
    return request.user  # permission: never anonymous


ENDPOINT = Noun("webhook-endpoint", EndpointSerializer, _endpoint)
DELIVERY = Noun("webhook-delivery", DeliverySerializer, _delivery)


class SecretView(APIView):
    """The secret that signs."""

    # Whoever has it can forge messages, so that reading alone is not enough.
    read_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="get_webhook_secret",
        responses={200: SecretSerializer, **problems(400, 401, 503)},
    )
    def get(self, request: Request) -> Response:
        """Return the user's secret."""
        check_query(request, ())
        return Response(SecretSerializer(secret_of(_user(request))).data)


class SecretRotateView(APIView):
    """The changing of the secret."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="rotate_webhook_secret",
        request=None,
        responses={200: SecretSerializer, **problems(400, 401)},
    )
    def post(self, request: Request) -> Response:
        """Make a new secret; for 24 hours, messages are also signed with the previous secret."""
        check_no_fields(request)
        return Response(SecretSerializer(rotate_secret(_user(request))).data)


class EndpointsView(ListView[WebhookEndpoint]):
    """All endpoints of the user."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = EndpointSerializer

    def rows(self) -> QuerySet[WebhookEndpoint]:
        """Return the endpoints."""
        return own_endpoints(self.request.user)

    get = list_rows("list_webhook_endpoints", "List endpoints, newest first.", EndpointSerializer)
    post = ENDPOINT.maker(
        "create_webhook_endpoint",
        "Send the events of all your jobs and voices to a URL.",
        lambda request, asked: create_endpoint(_user(request), asked),
        EndpointCreateSerializer,
        *(409, 413),
    )


class EndpointView(APIView):
    """One endpoint."""

    write_scopes = (ApiKey.Scope.JOBS,)

    get = ENDPOINT.getter("get_webhook_endpoint", "Return an endpoint.")
    patch = ENDPOINT.changer(
        "change_webhook_endpoint",
        "Change an endpoint; messages that wait for a URL that you replaced are not sent.",
        lambda request, endpoint, asked: change_endpoint(endpoint, asked),
        EndpointChangeSerializer,
        413,
        is_partial=False,
    )
    delete = ENDPOINT.deleter(
        "delete_webhook_endpoint",
        "Delete an endpoint; messages that wait for it are not sent.",
        delete_endpoint,
    )


class EndpointTestView(APIView):
    """The trying of an endpoint."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="test_webhook_endpoint",
        request=None,
        parameters=[_LOCATION],
        responses={202: DeliverySerializer, **problems(400, 401, 404)},
    )
    def post(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        """Send the event `test` to an endpoint, even if it is off or does not want this event."""
        check_no_fields(request)
        return _accepted(tell_test(_endpoint(request, endpoint_id)))


class DeliveriesView(ListView[WebhookDelivery]):
    """All deliveries of the user."""

    serializer_class = DeliveryListSerializer
    filters = DeliveryFilterSerializer

    def rows(self) -> QuerySet[WebhookDelivery]:
        """Return the deliveries without what they send."""
        return own_deliveries(self.request.user).defer("body")

    get = list_rows(
        "list_webhook_deliveries",
        "List deliveries, newest first; they are kept for 30 days after their end.",
        DeliveryListSerializer,
        filters=DeliveryFilterSerializer,
    )


class DeliveryView(APIView):
    """One delivery."""

    get = DELIVERY.getter("get_webhook_delivery", "Return a delivery and its content.")


class DeliveryResendView(APIView):
    """The sending of a delivery once more."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="resend_webhook_delivery",
        request=None,
        parameters=[_LOCATION],
        responses={202: DeliverySerializer, **problems(400, 401, 404, 409)},
    )
    def post(self, request: Request, delivery_id: uuid.UUID) -> Response:
        """Send a delivery again at once, delivered or not, with the same id and body."""
        check_no_fields(request)
        if not resend_delivery(_delivery(request, delivery_id).pk):
            raise ApiProblem(
                409,
                "delivery_in_progress",
                "The delivery is being sent right now; try again in a moment.",
                retry_after=2,
            )
        return _accepted(_delivery(request, delivery_id))


def _accepted(row: WebhookDelivery) -> Response:
    answer = Response(DeliverySerializer(row).data, status=202)
    answer["Location"] = reverse("webhook-delivery", args=[row.pk])
    return answer
