"""Decide which webhooks a user may see; every queryset of them starts here."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from synth.models import WebhookDelivery, WebhookEndpoint


def own_endpoints(user: AbstractBaseUser | AnonymousUser) -> QuerySet[WebhookEndpoint]:
    """Return a user's endpoints; a superuser's are as few."""
    return WebhookEndpoint.objects.filter(owner_id=user.pk) if user.pk else _none()


def own_deliveries(user: AbstractBaseUser | AnonymousUser) -> QuerySet[WebhookDelivery]:
    """Return what was sent, or is to be, to a user's webhooks."""
    rows = WebhookDelivery.objects.all()
    return rows.filter(owner_id=user.pk) if user.pk else rows.none()


def _none() -> QuerySet[WebhookEndpoint]:
    return WebhookEndpoint.objects.none()
