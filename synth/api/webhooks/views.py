"""Serve webhooks over REST: the secret, the endpoints, the deliveries."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
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
from ttsweb.http.nouns import check_no_fields, read_body
from ttsweb.http.query_filters import check_list_query, read_condition
from ttsweb.http.schema import problems


def own_endpoints(user: AbstractBaseUser | AnonymousUser) -> QuerySet[WebhookEndpoint]:
    """Return a user's endpoints; a superuser's are as few."""
    return WebhookEndpoint.objects.filter(owner_id=user.pk) if user.pk else _none()


def own_deliveries(user: AbstractBaseUser | AnonymousUser) -> QuerySet[WebhookDelivery]:
    """Return what was sent, or is to be, to a user's webhooks."""
    rows = WebhookDelivery.objects.all()
    return rows.filter(owner_id=user.pk) if user.pk else rows.none()


def _none() -> QuerySet[WebhookEndpoint]:
    return WebhookEndpoint.objects.none()


_LOCATION = OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201, 202])


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


class EndpointsView(generics.ListAPIView[WebhookEndpoint]):
    """All endpoints of the user."""

    write_scopes = (ApiKey.Scope.JOBS,)
    serializer_class = EndpointSerializer

    def get_queryset(self) -> QuerySet[WebhookEndpoint]:
        """Return the endpoints."""
        return own_endpoints(self.request.user)

    @extend_schema(
        operation_id="list_webhook_endpoints",
        responses={200: EndpointSerializer(many=True), **problems(400, 401)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List endpoints, newest first."""
        check_query(request, ("cursor", "limit"))
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="create_webhook_endpoint",
        request=EndpointCreateSerializer,
        parameters=[_LOCATION],
        responses={201: EndpointSerializer, **problems(400, 401, 409, 413, 415)},
    )
    def post(self, request: Request) -> Response:
        """Send the events of all your jobs and voices to a URL."""
        asked = read_body(request, EndpointCreateSerializer)
        endpoint = create_endpoint(_user(request), asked)
        answer = Response(EndpointSerializer(endpoint).data, status=201)
        answer["Location"] = reverse("webhook-endpoint", args=[endpoint.pk])
        return answer


class EndpointView(APIView):
    """One endpoint."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="get_webhook_endpoint",
        responses={200: EndpointSerializer, **problems(400, 401, 404)},
    )
    def get(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        """Return an endpoint."""
        check_query(request, ())
        return Response(EndpointSerializer(_endpoint(request, endpoint_id)).data)

    @extend_schema(
        operation_id="change_webhook_endpoint",
        request=EndpointChangeSerializer,
        responses={200: EndpointSerializer, **problems(400, 401, 404, 413, 415)},
    )
    def patch(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        """Change an endpoint; messages that wait for a URL that you replaced are not sent."""
        check_query(request, ())
        endpoint = _endpoint(request, endpoint_id)
        serializer = EndpointChangeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        change_endpoint(endpoint, serializer.validated_data)
        return Response(EndpointSerializer(endpoint).data)

    @extend_schema(
        operation_id="delete_webhook_endpoint", responses={204: None, **problems(400, 401, 404)}
    )
    def delete(self, request: Request, endpoint_id: uuid.UUID) -> Response:
        """Delete an endpoint; messages that wait for it are not sent."""
        check_query(request, ())
        delete_endpoint(_endpoint(request, endpoint_id))
        return Response(status=204)


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


class DeliveriesView(generics.ListAPIView[WebhookDelivery]):
    """All deliveries of the user."""

    serializer_class = DeliveryListSerializer

    def get_queryset(self) -> QuerySet[WebhookDelivery]:
        """Return the deliveries that the query's filters let through."""
        if getattr(self, "swagger_fake_view", False):
            return WebhookDelivery.objects.none()
        condition = read_condition(self.request, DeliveryFilterSerializer)
        return own_deliveries(self.request.user).filter(condition).defer("body")

    @extend_schema(
        operation_id="list_webhook_deliveries",
        parameters=[DeliveryFilterSerializer],
        responses={200: DeliveryListSerializer(many=True), **problems(400, 401)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List deliveries, newest first; they are kept for 30 days after their end."""
        check_list_query(request, DeliveryFilterSerializer)
        return super().get(request, *args, **kwargs)


class DeliveryView(APIView):
    """One delivery."""

    @extend_schema(
        operation_id="get_webhook_delivery",
        responses={200: DeliverySerializer, **problems(400, 401, 404)},
    )
    def get(self, request: Request, delivery_id: uuid.UUID) -> Response:
        """Return a delivery and its content."""
        check_query(request, ())
        return Response(DeliverySerializer(_delivery(request, delivery_id)).data)


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
