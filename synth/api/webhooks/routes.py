"""Route webhooks below /api/v1/webhooks/."""

from __future__ import annotations

from django.urls import path

from synth.api.webhooks import views

_ENDPOINT = "endpoints/<uuid:endpoint_id>"
_DELIVERY = "deliveries/<uuid:delivery_id>"

urlpatterns = [
    path("secret", views.SecretView.as_view(), name="webhook-secret"),
    path("secret/rotate", views.SecretRotateView.as_view(), name="webhook-secret-rotate"),
    path("endpoints", views.EndpointsView.as_view(), name="webhook-endpoints"),
    path(_ENDPOINT, views.EndpointView.as_view(), name="webhook-endpoint"),
    path(f"{_ENDPOINT}/test", views.EndpointTestView.as_view(), name="webhook-endpoint-test"),
    path("deliveries", views.DeliveriesView.as_view(), name="webhook-deliveries"),
    path(_DELIVERY, views.DeliveryView.as_view(), name="webhook-delivery"),
    path(f"{_DELIVERY}/resend", views.DeliveryResendView.as_view(), name="webhook-delivery-resend"),
]
